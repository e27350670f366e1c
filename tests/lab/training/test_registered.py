"""Networks, maximizers, datasets and optimizers that a user registers train like the package's own."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import fingerprint
from torch import Tensor, nn

from tembed import maximizers
from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.cli.cmd_train import parse
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab import data
from tembed.lab.training.loop import train
from tembed.lab.training.optimizers import optimizer_names, register_optimizer
from tembed.lab.training.recipe import Recipe, recipe_of
from tembed.lab.training.run import Run, checkpoint_digest, run_name
from tembed.models.network import Network
from tembed.models.registry import register_model
from tembed.trained.weights_file import load as load_network

pytestmark = pytest.mark.usefixtures("registries")


def small_network(num_classes: int, input_size: int, block: Any = None, side: int = 2, **options: Any) -> Network:
    """A `Network` around one convolution, whose last maps are of ``side`` x ``side`` pixels."""
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(side))
    placed = None if block is None else block(8, num_classes, **options)
    return Network(stem, [nn.Identity() for _ in range(3)], placed, nn.Identity(), 8, num_classes)


def with_block(num_classes: int, input_size: int, **options: Any) -> Network:
    return small_network(num_classes, input_size, FeatureEmbedding, **options)


def with_scores(num_classes: int, input_size: int) -> Network:
    return small_network(num_classes, input_size, DeepSupervision)


@pytest.mark.parametrize("build", [with_block, with_scores])
def test_a_network_with_scores_trains_with_the_patch_loss(build: Any, tmp_path: Path) -> None:
    register_model("mine", build)
    assert Recipe("mine", "dots").complete().weight == 0.5
    run = train(Recipe("mine", "dots", epochs=1, weight=0.25), tmp_path / "run")
    (record,) = run.metrics
    assert record["patches"] > 0
    assert record["loss"] == pytest.approx(0.75 * record["head"] + 0.25 * record["patches"])
    assert recipe_of(load_network(run.folder)).weight == 0.25


def test_a_network_without_scores_refuses_a_weight() -> None:
    register_model("plain", small_network)
    assert Recipe("plain", "dots").complete().weight is None
    with pytest.raises(TembedError, match="`weight` does not apply to plain"):
        Recipe("plain", "dots", weight=0.5).complete()


def test_tricks_come_from_the_dataset_unless_the_network_has_its_own_default() -> None:
    options = ("softmax_on_bn", "smooth_shortcut")
    register_model("mine", with_block, options=options)
    register_model("unsmoothed", with_block, options=options, defaults={"smooth_shortcut": False})
    data.register_dataset(data.Dataset("tricky", block_options={"softmax_on_bn": True, "smooth_shortcut": True}))
    found = {
        (model, name): (recipe.softmax_on_bn, recipe.smooth_shortcut)
        for model in ("mine", "unsmoothed")
        for name in ("tricky", "dots")
        for recipe in [Recipe(model, name).complete()]
    }
    assert found == {
        ("mine", "tricky"): (True, True),
        ("mine", "dots"): (False, False),
        ("unsmoothed", "tricky"): (True, False),
        ("unsmoothed", "dots"): (False, False),
    }
    assert Recipe("mine", "tricky", smooth_shortcut=False).complete().smooth_shortcut is False


def test_a_trick_that_no_recipe_records_is_refused() -> None:
    data.register_dataset(data.Dataset("tricky", block_options={"smooth_shortcuts": True}))
    with pytest.raises(TembedError, match=r"'smooth_shortcuts'.*did you mean 'smooth_shortcut'"):
        Recipe("rn26-embed", "tricky").complete()


class Tempered(nn.Module):
    """Soft-max with a temperature, a constant that the paper's maximizers do not have."""

    def __init__(self, temperature: float, eta: float):
        super().__init__()
        self.temperature, self.eta = temperature, eta

    def forward(self, a: Tensor) -> Tensor:
        return self.eta * (a / self.temperature).softmax(1)


@pytest.fixture
def tempered(registries: None) -> None:
    maximizers.register(
        "tempered", lambda channels, temperature, eta: Tempered(temperature, eta), {"temperature": 2.0, "eta": 3.0}
    )


@pytest.mark.usefixtures("tempered")
def test_a_maximizers_own_constant_is_part_of_the_recipe(tmp_path: Path) -> None:
    recipe = Recipe("rn20", "dots", maximizer="tempered", epochs=1, constants=(("temperature", 0.5),))
    complete = recipe.complete()
    assert (complete.mu, complete.eta, complete.eps, complete.constants) == (None, 3.0, None, (("temperature", 0.5),))
    assert Recipe("rn20", "dots", maximizer="tempered").complete().constants == (("temperature", 2.0),)
    plain = json.loads(json.dumps(complete.to_json()))
    assert plain["constants"] == {"temperature": 0.5}
    assert Recipe.from_json(plain) == complete
    line = "rn20 --data dots --maximizer tempered --epochs 1 --constants temperature 0.5"
    assert parse(line.split()).recipe == recipe
    run = train(recipe, tmp_path / "run")
    chosen = [module for module in load_network(run.folder).modules() if isinstance(module, Tempered)]
    assert {(module.temperature, module.eta) for module in chosen} == {(0.5, 3.0)}


@pytest.mark.usefixtures("tempered")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"constants": (("temprature", 1.0),)}, "'temprature' in `constants` does not apply.*mean 'temperature'"),
        ({"constants": (("eta", 1.0),)}, "give `eta` instead"),
        ({"constants": (("temperature", 1.0), ("temperature", 2.0))}, "free of repeated names"),
        ({"constants": (("temperature", float("nan")),)}, "`constants` is .*finite"),
        ({"mu": 1.0}, "`mu` does not apply"),
        ({"maximizer": "tempred"}, "`maximizer` is 'tempred', which is unknown; did you mean 'tempered'"),
    ],
)
def test_a_constant_that_does_not_apply_is_an_error(changes: dict[str, Any], said: str) -> None:
    recipe = dataclasses.replace(Recipe("rn20", "dots", maximizer="tempered"), **changes)
    with pytest.raises(TembedError, match=said):
        recipe.complete()


def test_a_recipe_without_extra_constants_records_none() -> None:
    assert "constants" not in Recipe("rn20", "dots", maximizer="entropic").complete().to_json()


class Averaging(torch.optim.Optimizer):
    """Gradient descent on means over a parameter's first axis: its state differs in shape from the parameter."""

    def __init__(self, model: nn.Module, lr: float):
        super().__init__(model.parameters(), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state.setdefault(p, {}) or self.state[p]
                if not state:
                    state["mean"] = torch.zeros(p.shape[1:])
                state["mean"].lerp_(p.grad.mean(0), 0.1)
                p.sub_(p.grad + state["mean"], alpha=group["lr"])


class Crash(Exception):
    """Ends a run as a power cut would."""


class CrashAfter(Progress):
    def __init__(self, steps: int):
        self.steps = steps

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        self.steps -= "loss" in numbers
        if self.steps < 0:
            raise Crash


def test_an_optimizer_trains_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    register_optimizer("averaging", lambda model, recipe: Averaging(model, recipe.lr))
    assert "averaging" in optimizer_names()
    recipe = Recipe("rn20", "dots", epochs=2, batch_size=30, optimizer="averaging", lr=0.01)
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", checkpoint_seconds=0, progress=CrashAfter(2))
    assert Run(tmp_path / "run").result is None
    train(recipe, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(whole.folder)


def test_an_optimizer_whose_state_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    class Counting(Averaging):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step()
            for state in self.state.values():
                state["count"] = 1

    register_optimizer("counting", lambda model, recipe: Counting(model, recipe.lr))
    recipe = Recipe("rn20", "dots", epochs=1, batch_size=30, optimizer="counting", lr=0.01)
    with pytest.raises(TembedError, match="the optimizer stores 'count' as int; only tensors are saved"):
        train(recipe, tmp_path / "run")


def test_constants_of_ones_own_change_the_name_and_the_checkpoints() -> None:
    maximizers.register("tempered", lambda channels, temperature: nn.Softmax(1), {"temperature": 0.5})
    recipes = [
        Recipe("rn20", "dots", maximizer="tempered", constants=(("temperature", value),)).complete()
        for value in (0.5, 2.0)
    ]
    assert len({run_name(recipe) for recipe in recipes}) == 2
    assert len({checkpoint_digest(recipe) for recipe in recipes}) == 2


def test_a_record_of_a_run_is_read_without_the_plugin_it_was_trained_with() -> None:
    plain = Recipe("rn20", "dots", optimizer="averaging", maximizer="tempered").to_json()
    recipe = Recipe.from_json(plain | {"constants": {"temperature": 0.5}})
    assert (recipe.optimizer, recipe.constants) == ("averaging", (("temperature", 0.5),))
    with pytest.raises(TembedError, match="`optimizer` is 'averaging', which is unknown"):
        recipe.complete()


def test_a_second_registration_under_a_name_is_refused() -> None:
    with pytest.raises(TembedError, match="an optimizer named 'adam' is already registered"):
        register_optimizer("adam", lambda model, recipe: Averaging(model, recipe.lr))


# --- batches of one image


def test_a_batch_of_one_image_trains(tmp_path: Path) -> None:
    """BN normalises over the pixels of the image; with one step per image, an epoch has as many steps as images."""
    for images, batch, steps in ((10, 1, 10), (11, 5, 3)):
        seen = Steps()
        recipe = Recipe("rn26-embed", "dots", epochs=1, batch_size=batch, train_images=images)
        run = train(recipe, tmp_path / str(batch), progress=seen)
        assert seen.steps == steps
        assert run.result is not None
        assert run.result["train_images"] == images


class Steps(Progress):
    steps = 0

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        self.steps += "loss" in numbers


@pytest.mark.parametrize(("side", "count", "batch", "allowed"), [(2, 11, 5, True), (1, 11, 5, False), (1, 10, 5, True)])
def test_one_value_per_channel_is_refused_before_the_run(
    side: int, count: int, batch: int, allowed: bool, tmp_path: Path
) -> None:
    """As torch does, because a single value has no variance."""
    register_model("mine", lambda classes, size: small_network(classes, size, side=side))
    recipe = Recipe("mine", "dots", epochs=1, batch_size=batch, train_images=count)
    if allowed:
        assert train(recipe, tmp_path / "run").result is not None
        return
    with pytest.raises(TembedError, match=r"make a batch of one.*another `batch_size` or `train_images`"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- names


def test_a_hyphen_in_a_name_never_makes_two_runs_share_a_name() -> None:
    register_model("rn26-mine", small_network)
    names = [run_name(Recipe("rn26-mine", "dots")), run_name(Recipe("rn26", "mine-dots"))]
    assert names[0] == "rn26-mine-dots-paper-0"
    assert names[1].startswith("rn26-mine-dots-paper-0-")
