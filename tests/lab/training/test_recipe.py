"""A recipe is the paper's by default, and refuses settings that would do nothing."""

import dataclasses
import json
import subprocess
import sys

import pytest

from tembed import maximizers
from tembed.cli.cmd_train import parse
from tembed.common.errors import TembedError
from tembed.lab.training.optimizers import optimizer_names
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.models.registry import list_models


def test_the_paper_preset_is_exactly_section_4() -> None:
    recipe = Recipe("rn26-embed", "cifar100").complete()
    assert (recipe.lr, recipe.betas, recipe.weight_decay, recipe.batch_size) == (1e-3, (0.9, 0.999), 1e-4, 32)
    assert (recipe.weight, recipe.schedule, recipe.optimizer, recipe.start_scale) == (0.5, "constant", "adam", 1.0)
    assert (recipe.epochs, recipe.split, recipe.preset) == (200, "paper", "paper")
    assert Recipe.paper("rn26-embed", "cifar100") == Recipe("rn26-embed", "cifar100")


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "mini-imagenet", "parts"])
@pytest.mark.parametrize("model", list_models())
@pytest.mark.parametrize("preset", [Recipe.paper, Recipe.fast])
def test_the_tricks_for_cifar_10_are_on_only_for_cifar_10(preset: type[Recipe], model: str, data: str) -> None:
    recipe = preset(model, data).complete()
    block, densenet = "-embed" in model, model.startswith("dn")
    assert recipe.softmax_on_bn == (data == "cifar10" if block else None)
    shortcut = model.endswith("-1x1") or (block and not model.endswith(("-cat", "-cosine")))
    assert recipe.smooth_shortcut == (data == "cifar10" and not densenet if shortcut else None)
    assert recipe.weight == (0.5 if block or model.endswith("-aux") else None)


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        ("rn26", {"weight": 0.3}),
        ("rn26", {"softmax_on_bn": False}),
        ("rn26-aux", {"softmax_on_bn": True}),
        ("dn100-embed-cat", {"smooth_shortcut": True}),
        ("dn100-embed-cat", {"norm_shortcut": True}),
        ("rn26-aux", {"norm_shortcut": True}),
        ("wrn16", {"maximizer": "entropic"}),
        ("rn26", {"mu": 1.0}),
        ("rn26", {"maximizer": "one-hot", "eps": 2.0}),
        ("rn26", {"warmup": 0.1}),
    ],
)
def test_a_setting_that_does_not_apply_is_an_error(model: str, setting: dict[str, object]) -> None:
    with pytest.raises(TembedError, match=f"`{list(setting)[-1]}` does not apply"):
        Recipe(model, "cifar10", **setting).complete()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"weight": 1.5},
        {"weight_decay": -1.0},
        {"betas": (0.9, 1.0)},
        {"start_scale": 0.1},
        {"seed": -1},
        {"schedule": "steps"},
        {"train_images": 0},
        {"split": "offical"},
        {"optimizer": "sgd"},
        {"maximizer": "argmax"},
        {"eta": 0.0, "maximizer": "entropic"},
        {"mu": float("inf"), "maximizer": "entropic"},
    ],
)
def test_a_value_out_of_range_is_named(setting: dict[str, object]) -> None:
    with pytest.raises(TembedError, match=f"`{next(iter(setting))}` is "):
        Recipe("rn26-embed", "cifar10", **setting).complete()  # type: ignore[arg-type]


def test_the_default_constants_of_a_maximizer_are_the_papers() -> None:
    recipe = Recipe("rn20", "cifar10", maximizer="perturbed-sampled").complete()
    assert (recipe.mu, recipe.eta, recipe.eps) == (2.5, 17.0, 1.0)
    assert recipe.model_options() == {"maximizer": "perturbed-sampled", "mu": 2.5, "eta": 17.0, "eps": 1.0}


def test_completing_twice_changes_nothing() -> None:
    recipe = Recipe.fast("RN26-Ours", "cifar10").complete()
    assert recipe.model == "rn26-embed"
    assert recipe.complete() == recipe


def test_the_json_record_gives_the_same_recipe() -> None:
    recipe = Recipe.fast("rn26-embed", "cifar10", seed=3).complete()
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_a_record_from_before_a_field_existed_is_read() -> None:
    assert Recipe.from_json({"model": "rn26", "data": "cifar10"}) == Recipe("rn26", "cifar10")


@pytest.mark.parametrize("values", [[], {}, {"model": "rn26"}, "rn26", {"model": "rn26", "data": "parts", "x": 1}])
def test_values_that_are_not_a_recipe_are_refused(values: object) -> None:
    with pytest.raises(TembedError, match="recipe"):
        Recipe.from_json(values)  # type: ignore[arg-type]


def test_a_recipe_with_values_of_other_types_is_refused() -> None:
    plain = Recipe("rn26", "cifar10").to_json()
    for field in dataclasses.fields(Recipe):
        for value in ({"a": 1}, [[]]):
            with pytest.raises(TembedError):
                Recipe.from_json(plain | {field.name: value}).complete()


def test_a_recipe_knows_its_preset() -> None:
    assert Recipe.fast("rn26", "cifar10", epochs=3, seed=1).preset == "fast"
    assert Recipe.fast("rn26", "cifar10").complete().preset == "fast"
    assert Recipe.fast("rn26", "cifar10", lr=PRESETS["fast"]["lr"] / 2).preset == "own"


@pytest.mark.parametrize("name", ["paper", "fast"])
def test_the_command_line_gives_the_recipe_that_python_gives(name: str) -> None:
    line = f"RN26-Ours --data cifar10 --preset {name} --epochs 3 --lambda 0.25 --seed 4 --train-images 100"
    expected = getattr(Recipe, name)("RN26-Ours", "cifar10", epochs=3, weight=0.25, seed=4, train_images=100)
    assert parse(line.split()).recipe == expected
    assert parse(f"RN26-Ours --data cifar10 --preset={name}".split()).recipe.preset == name


def test_the_help_names_every_optimizer_and_maximizer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    said = "".join(capsys.readouterr().out.replace("│", "").split())
    assert "{" + ",".join(optimizer_names()) + "}" in said
    for name in maximizers.names():
        assert name in said


def test_an_error_about_an_unknown_field_suggests_the_nearest() -> None:
    with pytest.raises(TembedError, match="no field 'batchsize'; did you mean 'batch_size'"):
        Recipe.from_json({"model": "rn26", "data": "cifar10", "batchsize": 8})
    with pytest.raises(TembedError, match="no field 'epoch'; did you mean 'epochs'"):
        Recipe.fast("rn26", "cifar10", epoch=8)
    with pytest.raises(TembedError, match=r"split cannot be 'offical'.*did you mean 'official'"):
        Recipe.from_json({"model": "rn26", "data": "cifar10", "split": "offical"})
    with pytest.raises(TembedError, match="`preset` is 'fats', which is unknown; did you mean 'fast'"):
        Recipe.from_preset("fats", "rn26", "cifar10")


@pytest.mark.process
def test_a_recipe_needs_no_torch() -> None:
    code = "import sys; from tembed import Recipe; Recipe.fast('rn26', 'cifar10'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    # The library never imports the command line's parser.
    code = (
        "import sys, tembed.lab.training.loop; tembed.Recipe('rn26', 'parts').complete(); "
        "sys.exit('tyro' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
