"""Statistics of batch normalisation that are measured again after an epoch of few steps."""

from pathlib import Path

import pytest
import torch
from support.progress import Said
from torch import nn

from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.process_group import SINGLE_PROCESS
from tembed.lab.training.recalibration import FEW_STEPS, recalibrate, recalibrates, staleness_warning
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.starting import build

pytestmark = pytest.mark.usefixtures("use_worlds")


class Frozen(nn.BatchNorm2d):
    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


def test_the_statistics_are_the_means_over_the_batches_of_an_epoch() -> None:
    """130 images in batches of 48: the last batch has 34 and counts less."""
    train = load_inputs(Recipe.fast("rn26", "tiny", batch_size=48).complete()).train
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Frozen(4))
    norm, frozen = model[1], model[2]
    assert isinstance(norm, nn.BatchNorm2d)
    assert isinstance(frozen, nn.BatchNorm2d)
    frozen.running_mean.fill_(7.0)  # type: ignore[union-attr]
    norm.num_batches_tracked.fill_(3)  # type: ignore[union-attr]
    model.eval()
    recalibrate(model, train, 2, 0, SINGLE_PROCESS)
    with torch.no_grad():
        values = [model[0](images) for images, _ in train.epoch(2)]
    assert [len(batch) for batch in values] == [48, 48, 34]
    mean, variance = (
        sum(len(batch) / 130 * getattr(batch, which)((0, 2, 3)) for batch in values) for which in ("mean", "var")
    )
    torch.testing.assert_close(norm.running_mean, mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(norm.running_var, variance, atol=1e-5, rtol=1e-4)
    assert (frozen.running_mean == 7).all(), "a frozen layer keeps its statistics"
    assert norm.momentum == 0.1
    assert norm.num_batches_tracked == 3
    assert not model.training


@pytest.mark.slow
def test_the_noise_of_a_sampled_maximizer_depends_on_the_seed_only() -> None:
    """A run that is resumed must get the statistics that it would have had."""
    recipe = Recipe("rn20", "dots", batch_size=16, maximizer="perturbed-sampled").complete()
    train = load_inputs(recipe).train
    found = []
    for before, seed in ((1, 0), (2, 0), (1, 7)):
        torch.manual_seed(3)
        model = build(recipe, 10, 8)
        torch.manual_seed(before)
        state = torch.get_rng_state()
        recalibrate(model, train, 0, seed, SINGLE_PROCESS)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(torch.cat([t.flatten() for name, t in model.state_dict().items() if "running" in name]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_only_one_cycle_runs_recalibrate_and_only_short_epochs() -> None:
    paper, fast = Recipe.paper("rn26", "tiny"), Recipe.fast("rn26", "tiny")
    assert recalibrates(fast, FEW_STEPS - 1)
    assert not recalibrates(fast, FEW_STEPS)
    assert not recalibrates(paper, 1)
    assert not recalibrates(Recipe.paper("rn26", "tiny", lr=1.1e-3), 1), "another rate changes nothing else"
    assert recalibrates(Recipe.paper("rn26", "tiny", averaging=0.5), 1), "mean weights have statistics of their own"
    short = Recipe.paper("rn26", "tiny", epochs=2)
    assert "after 8 steps" in (staleness_warning(short, 4) or "")
    assert staleness_warning(Recipe.paper("rn26", "tiny", epochs=13), 4) is None
    assert staleness_warning(fast, 4) is None


@pytest.mark.slow
def test_a_few_steps_are_evaluated_with_the_statistics_of_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps with stale statistics have a higher loss than with measured ones."""
    recipe, shown = Recipe.fast("rn26", "tiny", epochs=1, batch_size=32), Said()
    fresh = train(recipe, tmp_path / "fresh", progress=shown)
    assert not any("running statistics" in line for line in shown.lines)
    assert fresh.result is not None
    assert evaluate(fresh, "val").head == fresh.metrics[0]["val_head"], "the weights file has the new statistics"
    monkeypatch.setattr("tembed.lab.training.loop.recalibrates", lambda *_: False)
    stale = train(recipe, tmp_path / "stale")
    assert stale.metrics[0]["loss"] == fresh.metrics[0]["loss"]
    assert fresh.metrics[0]["val_head"] < stale.metrics[0]["val_head"]


def test_a_short_run_of_the_paper_preset_warns(tmp_path: Path) -> None:
    shown = Said()
    train(Recipe.paper("rn26", "dots", epochs=1), tmp_path / "run", progress=shown)
    (line,) = [line for line in shown.lines if "running statistics" in line]
    assert line.startswith("warning: after 2 steps")
