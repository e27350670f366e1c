"""The mean of the weights over the end of a run."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import fingerprint
from support.progress import Crash

from tembed.common.progress import Progress
from tembed.lab.training.loop import Training, train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.state import copy_tensors
from tembed.trained.weights_file import load

# Eight steps, of which the last four are averaged.
AVERAGED = Recipe("rn26-embed", "dots", epochs=2, batch_size=16, averaging=0.5)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(AVERAGED, tmp_path_factory.mktemp("runs") / "run", root=worlds)


def test_the_tested_weights_are_the_mean_of_the_last_half(
    averaged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same training without averaging has the same weights after every step, which are averaged by hand here."""
    after_step: list[dict[str, torch.Tensor]] = []
    step = Training.train_step

    def recorded(self: Training, side: int) -> None:
        step(self, side)
        after_step.append(copy_tensors(self.model))

    monkeypatch.setattr(Training, "train_step", recorded)
    train(dataclasses.replace(AVERAGED, averaging=0.0), tmp_path / "plain")
    assert len(after_step) == 8
    assert averaged.result is not None
    assert averaged.result["best_epoch"] == 2, "otherwise the mean is not what was kept"
    chosen = after_step[4:8]
    found = load(averaged.folder).state_dict()
    for name, tensor in found.items():
        if "running_" in name:  # BN statistics are measured again after so few steps
            continue
        last = chosen[-1][name]
        mean = torch.stack([each[name] for each in chosen]).mean(0) if last.is_floating_point() else last
        torch.testing.assert_close(tensor, mean, msg=name)


@pytest.mark.slow
def test_an_averaged_run_that_crashes_resumes_to_the_same_end(averaged: Run, tmp_path: Path) -> None:
    class Break(Progress):
        left = 6

        def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
            self.left -= task == "training" and "loss" in numbers
            if not self.left:
                raise Crash

    with pytest.raises(Crash):
        train(AVERAGED, tmp_path / "run", progress=Break(), checkpoint_seconds=0)
    train(AVERAGED, tmp_path / "run", checkpoint_seconds=0)
    assert fingerprint(tmp_path / "run") == fingerprint(averaged.folder)
