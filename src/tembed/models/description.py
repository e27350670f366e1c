"""What describes a network: how to build it again, what its images look like, and what is known about its weights.

There is one form of it. Every network has it as ``model.description``. The weights file, ``config.json`` of a hub's
folder and the metadata of an ONNX file are three writers of `Description.to_json`; a field that is added here is in all
of them.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from tembed.common.arrays import Fit, Triple
from tembed.common.errors import TembedError, first_line
from tembed.common.plain_values import fits, wrong_field
from tembed.common.results import check_result

OPTION_TYPES: dict[str, Any] = {
    "softmax_on_bn": bool,
    "smooth_shortcut": bool,
    "norm_shortcut": bool,
    "window": int | tuple[int, int] | None,
    "maximizer": str,
    "mu": float,
    "eta": float,
    "eps": float,
    "conventions": str,
    "freeze": bool,
    "image_size": int | None,
}
"""The types of the options that this package knows; those of a registered network or maximizer may be of any."""


@dataclass(frozen=True)
class Description:
    """Every field has a default that means "unknown", so that a network without a history has a description too."""

    model: str = ""
    """the name for `tembed.create_model`, or of an attached network"""
    options: dict[str, Any] = field(default_factory=dict)
    """options of the network, as `tembed.create_model` takes them; of an attached one also freeze and image_size"""
    input_size: int = 0
    """shorter side of the images in pixels"""
    classes: tuple[str, ...] = ()
    mean: Triple | None = None
    """normalises the images together with ``std``; pixels are from 0 to 1"""
    std: Triple | None = None
    fit: Fit = "crop"
    """how an oblong picture becomes a square"""
    recipe: dict[str, Any] | None = None
    """the recipe of the training as plain values"""
    data_sha256: str | None = None
    """hash of the dataset"""
    epoch: int | None = None
    """the epoch of these weights, the best on the validation images"""
    val_accuracy: float | None = None
    result: dict[str, Any] | None = None
    """the result of the finished run, with the test accuracy"""
    started_from: str | None = None
    """checksum of the weights that these were changed from, in a way that was not recorded"""
    weights_sha256: str | None = None
    """checksum of the weights, which tells whether they have changed since they were loaded"""

    def __repr__(self) -> str:
        data = f" on {self.recipe['data']}" if self.recipe and "data" in self.recipe else ""
        size = f"{self.input_size}x{self.input_size}"
        return f"Description({self.model or 'unknown network'}{data}, {len(self.classes)} classes, {size})"

    @property
    def seed(self) -> int:
        """The seed of the training; 0 if it is unknown."""
        return int((self.recipe or {}).get("seed", 0))

    @property
    def normalisation(self) -> tuple[Triple, Triple]:
        """``mean`` and ``std``. Raises `TembedError` if they are unknown."""
        if self.mean is None or self.std is None:
            raise TembedError(
                "this network does not know the normalisation of its images: give a run, a weights file or a model "
                "from tembed.load"
            )
        return self.mean, self.std

    def changed(self) -> "Description":
        """The description after the weights have changed: recipe and scores no longer describe them."""
        return dataclasses.replace(
            self,
            recipe=None,
            data_sha256=None,
            epoch=None,
            val_accuracy=None,
            result=None,
            started_from=self.weights_sha256,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that are known, as JSON values."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and value not in ("", 0, (), {})
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Description":
        """The description that `to_json` wrote; other fields are ignored. Raises `TembedError` for a wrong type."""
        if "model" not in values and isinstance(values.get("recipe"), dict):
            values = values | network_of_recipe(values["recipe"])
        hints = get_type_hints(cls)
        known = {name: value for name, value in values.items() if name in hints and value is not None}
        for name, value in known.items():
            if not fits(value, hints[name]):
                raise wrong_field(known, name)
            if isinstance(value, list):
                known[name] = tuple(map(float, value)) if name in ("mean", "std") else tuple(value)
        for name, value in known.get("options", {}).items():
            if not fits(value, OPTION_TYPES.get(name, Any)):
                raise wrong_field({f"option {name}": value}, f"option {name}")
        recipe = known.get("recipe", {})
        if not fits(recipe.get("seed", 0), int) or not -(2**63) <= recipe.get("seed", 0) < 2**63:
            raise wrong_field(recipe, "seed")
        if "result" in known:
            try:
                check_result(known["result"])
            except TembedError as error:
                raise TembedError(f"its result cannot be used: {error}") from None
        try:
            return cls(**known)
        except TypeError as error:
            raise TembedError(first_line(error)) from None


def network_of_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """``model`` and ``options`` of weights files that record only the recipe: those written before Description."""
    names = ("softmax_on_bn", "smooth_shortcut", "maximizer", "mu", "eta", "eps")
    options = {name: recipe[name] for name in names if recipe.get(name) is not None}
    options |= {name: recipe[name] for name in ("norm_shortcut", "freeze", "image_size") if recipe.get(name)}
    if recipe.get("conventions", "torch") != "torch":
        options["conventions"] = recipe["conventions"]
    constants = recipe.get("constants") or {}
    return {"model": recipe.get("model"), "options": options | (constants if isinstance(constants, dict) else {})}
