"""Runs that start from the weights of another run."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import fingerprint
from support.progress import Crash, Said
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.schedule import derived_seed
from tembed.lab.training.starting import build, start_network
from tembed.lab.training.transfer import PER_CLASS, load_fitting
from tembed.trained.weights_file import load

SOURCE = Recipe("rn26-embed", "dots", epochs=1, batch_size=16)
STILL = {"epochs": 1, "batch_size": 16, "init_rate": 0.0, "seed": 5}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(SOURCE, tmp_path_factory.mktemp("runs") / "source", root=worlds)


def fresh(recipe: Recipe, classes: int, side: int) -> dict[str, Tensor]:
    """The weights that the recipe would start with by itself."""
    torch.manual_seed(derived_seed(recipe.seed, "weights"))
    return build(recipe.complete(), classes, side).state_dict()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_the_same_classes_start_from_all_weights(source: Run, tmp_path: Path, optimizer: str) -> None:
    """At rate zero all weights of the new run are those of the source."""
    run = train(Recipe("rn26-embed", "dots", init=str(source.folder), optimizer=optimizer, **STILL), tmp_path / "run")
    ours, theirs = load(run.folder), load(source.folder)
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    about = json.loads((run.folder / "network.json").read_text())
    assert about["init"] == str(source.folder)
    assert about["init_recipe"] == source.recipe.to_json()


def test_other_classes_get_a_new_head_and_new_class_convolutions(source: Run, tmp_path: Path) -> None:
    recipe = Recipe("rn26-embed", "dots", init=str(source.folder)).complete()
    said = Said()
    network, loaded = start_network(recipe, Run(tmp_path), ("cat", "dog"), 8, said)
    assert any("new: block.match.score, block.maximizer.bn, block.values, head" in line for line in said.lines)
    old = load(source.folder).state_dict()
    for name, tensor in network.state_dict().items():
        assert (name in loaded) == (not name.startswith(PER_CLASS)) == torch.equal(tensor, old[name]), name


def test_classes_of_other_names_or_in_another_order_are_other_classes(source: Run) -> None:
    recipe, tensors = SOURCE.complete(), load(source.folder).state_dict()
    names = tuple(f"class {number}" for number in range(10))
    start = fresh(SOURCE, 10, 8)
    model = build(recipe, 10, 8)
    for others in ([*names[:9], "another"], list(reversed(names))):
        model.load_state_dict(start)
        loaded = load_fitting(model, names, tensors, {"classes": others}, "source")
        assert not any(name.startswith(PER_CLASS) for name in loaded)
        for name, tensor in model.state_dict().items():
            expected = start if name.startswith(PER_CLASS) else tensors
            assert torch.equal(tensor, expected[name]), name
    assert set(load_fitting(model, names, tensors, {"classes": list(names)}, "source")) == set(tensors)
    assert set(load_fitting(model, names, tensors, {}, "source")) == set(tensors)


def test_a_network_with_the_block_starts_from_one_without(tmp_path: Path) -> None:
    plain = train(Recipe("rn26", "dots", epochs=1, batch_size=16), tmp_path / "plain")
    run = train(Recipe("rn26-embed", "dots", init=str(plain.folder), **STILL), tmp_path / "run")
    old, new = load(plain.folder).state_dict(), dict(load(run.folder).named_parameters())
    for name, tensor in new.items():
        assert name.startswith("block.") or torch.equal(tensor, old[name]), name


def test_the_loaded_weights_learn_at_their_share_of_the_rate(source: Run, tmp_path: Path) -> None:
    """Adam's first step moves every weight by the rate, whatever the gradient."""
    recipe = Recipe(
        "rn26-embed", "tiny", epochs=1, batch_size=32, train_images=32, init=str(source.folder), init_rate=0.1
    )
    run = train(recipe, tmp_path / "run")
    old, new = load(source.folder).state_dict(), dict(load(run.folder).named_parameters())
    moved = (new["stem.0.weight"] - old["stem.0.weight"]).abs()
    assert moved.median().item() == pytest.approx(1e-4, rel=0.02)


@pytest.mark.slow
def test_a_run_resumes_without_the_weights_that_it_started_from(source: Run, tmp_path: Path) -> None:
    class Break(Progress):
        """Ends the run in its second step, after the checkpoint of the first."""

        left = 2

        def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
            self.left -= "loss" in numbers
            if not self.left:
                raise Crash

    start = tmp_path / "start.safetensors"
    shutil.copy(source.best_path, start)
    recipe = Recipe("rn26-embed", "tiny", epochs=1, batch_size=32, init=str(start), init_rate=0.5)
    train(recipe, tmp_path / "whole")
    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", progress=Break(), checkpoint_seconds=0)
    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", progress=Break(), checkpoint_seconds=0)
    start.unlink()
    train(recipe, tmp_path / "run", checkpoint_seconds=0)
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["sparse", "meta", "complex", "pipe"])
@pytest.mark.parametrize("model", ["rn26-embed", "tembed:rn26-embed@stage3"])
def test_tensors_that_hold_no_weights_are_refused_and_leave_the_folder_free(
    source: Run, tmp_path: Path, kind: str, model: str
) -> None:
    tensors = dict(load(source.folder).state_dict())
    change = {"sparse": Tensor.to_sparse, "meta": lambda weight: weight.to("meta"), "complex": lambda w: w + 0j}
    path = tmp_path / "x.pt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        torch.save(tensors | {"head.weight": change[kind](tensors["head.weight"])}, path)
    with pytest.raises(TembedError, match=r"x\.pt"):
        train(Recipe(model, "dots", init=str(path), **STILL), tmp_path / "run")
    train(Recipe("rn20", "dots", epochs=1, batch_size=30), tmp_path / "run")


def test_weights_that_do_not_fit_are_refused(source: Run, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="do not fit this network"):
        train(Recipe("rn38-embed", "dots", epochs=1, init=str(source.folder)), tmp_path / "run")
    with pytest.raises(TembedError, match="is not a run folder, a weights file"):
        train(Recipe("rn26", "dots", epochs=1, init="nowhere"), tmp_path / "run2")
    for changes, message in (
        ({"init": "random"}, "`init` is random"),
        ({"init_rate": 0.1}, "`init_rate` needs weights"),
        ({"init": "rn26/cifar10", "init_rate": 2.0}, "`init_rate` is 2.0"),
    ):
        with pytest.raises(TembedError, match=message):
            dataclasses.replace(Recipe("rn26", "dots"), **changes).complete()
