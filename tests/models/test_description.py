"""The one record of a network: its JSON form, older records, and what survives a change of the weights."""

import dataclasses
import json
from typing import Any

import pytest

from tembed.common.errors import TembedError
from tembed.lab.training.recipe import Recipe
from tembed.models.description import Description, network_of_recipe

RESULT = {
    "best_epoch": 7,
    "epochs": 8,
    "val_accuracy": 0.9,
    "test_accuracy": 0.8,
    "total_seconds": 9.0,
    "test": {"images": 50},
}
FULL = Description(
    "rn26-embed", {"window": 3}, 32, ("a", "b"), (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), "pad", {"data": "x", "seed": 4},
    "d" * 64, 7, 0.9, RESULT, "s" * 64, "w" * 64,
)  # fmt: skip


def test_the_json_form_gives_every_field_back() -> None:
    assert all(getattr(FULL, each.name) for each in dataclasses.fields(Description)), "a field without a value"
    assert Description.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL
    assert Description.from_json({"kind": "weights"}) == Description()


def test_after_a_change_only_the_network_and_its_images_are_known() -> None:
    known = {"model", "options", "input_size", "classes", "mean", "std", "fit", "weights_sha256"}
    changed = FULL.changed()
    for each in dataclasses.fields(Description):
        value = getattr(changed, each.name)
        if each.name == "started_from":
            assert value == FULL.weights_sha256
        else:
            assert value == (getattr(FULL, each.name) if each.name in known else None), each.name


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("rn26", {"conventions": "keras"}),
        ("rn26-embed", {"norm_shortcut": True}),
        ("rn20", {"maximizer": "entropic", "mu": 1.5}),
        ("dn100-embed-cat", {}),
        ("tembed:rn26@stage3", {"freeze": True, "init": "random", "image_size": 64}),
    ],
)
def test_a_record_with_only_a_recipe_gives_the_options_of_that_recipe(model: str, changes: dict[str, Any]) -> None:
    """So weights from before descriptions are built as they were trained."""
    recipe = Recipe(model, "cifar10", **changes).complete()
    assert network_of_recipe(recipe.to_json()) == {"model": model, "options": recipe.model_options()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softmax_on_bn", "no"),
        ("smooth_shortcut", 0),
        ("norm_shortcut", [True]),
        ("window", 2.5),
        ("window", [2, 2, 2]),
        ("maximizer", 3),
        ("mu", "1"),
        ("eps", True),
        ("conventions", None),
        ("freeze", "yes"),
        ("image_size", 32.0),
    ],
)
def test_an_option_of_the_wrong_type_is_named(name: str, value: Any) -> None:
    """A text such as "no" would count as true."""
    with pytest.raises(TembedError, match=f"its option {name} is "):
        Description.from_json({"model": "rn26-embed", "options": {name: value}})


def test_options_of_every_usual_type_are_read() -> None:
    options = {"window": [3, 2], "mu": 1, "eta": 0.5, "softmax_on_bn": False, "image_size": 64, "own_option": "text"}
    assert Description.from_json({"options": options}).options == options


@pytest.mark.parametrize("wrong", [{"classes": "ab"}, {"mean": [1, 2]}, {"fit": "tile"}, {"options": [1]}])
def test_a_value_of_the_wrong_type_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(TembedError, match=f"its {next(iter(wrong))} is "):
        Description.from_json(FULL.to_json() | wrong)
