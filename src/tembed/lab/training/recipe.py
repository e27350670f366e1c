"""What is trained, on what, and how (§4): one frozen record for Python, the command line and the run folder.

``Recipe(model, data)`` is exactly the paper's training. ``Recipe.from_preset`` starts from a named set of
defaults instead; `PRESETS` lists them and says what each changes and why.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_type_hints

from tembed.common.errors import TembedError, one_line
from tembed.common.plain_values import choices, fits
from tembed.lab.training.settings import (
    MARGIN_CONSTANTS,
    MAXIMIZER,
    DataSettings,
    NetworkSettings,
    TrainingSettings,
    check_name,
    check_ranges,
    nearest,
)

WARMUP = 0.2
"""Share of a one-cycle run during which the rate rises."""


@dataclass(frozen=True)
class Recipe(TrainingSettings, DataSettings, NetworkSettings):
    """All three parts. None means "what suits the model and the data"; `complete` fills it in."""

    model: str
    data: str

    @classmethod
    def paper(cls, model: str, data: str, **changes: Any) -> Self:
        """The paper's training (§4), with these fields changed."""
        return cls.from_preset("paper", model, data, **changes)

    @classmethod
    def fast(cls, model: str, data: str, **changes: Any) -> Self:
        """The best accuracy in few epochs, with these fields changed."""
        return cls.from_preset("fast", model, data, **changes)

    @classmethod
    def from_preset(cls, preset: str, model: str, data: str, **changes: Any) -> Self:
        """The defaults of a preset, with these fields changed."""
        check_name("preset", preset, PRESETS)
        for name in changes:
            if name not in _FIELDS:
                raise TembedError(f"a recipe has no field {name!r}{nearest(name, _FIELDS)}")
        return cls(model=model, data=data, **(PRESETS[preset] | changes))

    @property
    def preset(self) -> str:
        """The preset whose optimisation this recipe has, for any number of epochs; ``own`` if there is none."""
        for name, preset in PRESETS.items():
            like = dataclasses.replace(self, **{**_PRESET_DEFAULTS, **preset, "epochs": self.epochs})
            if _with_warmup(like) == _with_warmup(self):
                return name
        return "own"

    def complete(self, root: str | Path | None = None) -> "Recipe":
        """This recipe with every field that applies to its model and data filled in, and None in the others.

        ``root``: where datasets are stored, because the default split of imported data depends on its folders.
        Raises `TembedError` for a value that is out of range or unknown, or for a field that does not apply.
        """
        from tembed.lab.data.catalogue import dataset
        from tembed.lab.training.optimizers import optimizer_names
        from tembed.models.registry import model_info

        check_ranges(self)
        check_name("optimizer", self.optimizer, optimizer_names())
        info = model_info(self.model)
        self._check_attached()
        filled: dict[str, Any] = {"model": info.name}
        if self.split is None:
            from tembed.lab.data.splits import default_split  # imports NumPy and looks at the disk

            filled["split"] = default_split(self.data, root)
        if self.image_size is None:
            filled["image_size"] = self._size_of_init(root)
        usual = {each.name: each.metadata["usual"] for each in _OPTIONS}
        usual |= dataset(self.data).block_options | info.defaults
        for name in usual:
            if name not in {each.name for each in _OPTIONS}:
                raise TembedError(
                    f"{info.name} or {self.data} has a default for {name!r}, which is not an option of a recipe"
                    f"{nearest(name, [each.name for each in _OPTIONS])}"
                )
        for each in _OPTIONS:
            applies = info.has_scores if each.name == "weight" else each.name in info.options
            given = getattr(self, each.name)
            if given != each.default and not applies:
                needs = each.metadata["needs"]
                raise TembedError(f"`{each.name}` does not apply to {info.name}: it has no {needs}; leave it out")
            if given is None and applies:
                filled[each.name] = usual[each.name]
        filled.setdefault("maximizer", self.maximizer)
        filled |= self._complete_constants(info.name, filled["maximizer"])
        return dataclasses.replace(_with_warmup(self), **filled)

    def _check_attached(self) -> None:
        """Raise `TembedError` for fields that do not go with the network, with each other or with `freeze`."""
        from tembed.models.foreign import is_foreign

        if self.freeze and not is_foreign(self.model):
            raise TembedError(
                f"`freeze` does not apply to {self.model}, only to attached networks such as timm:NAME@LAYER or "
                "tembed:NAME@LAYER; leave it out"
            )
        if self.init == "random" and not is_foreign(self.model):
            raise TembedError(f"`init` is random, which is how {self.model} starts anyway; leave it out")
        if self.init_rate != 1 and (self.freeze or self.init == "random" or not (self.init or is_foreign(self.model))):
            raise TembedError("`init_rate` needs weights to start from that are trained further; leave it out")
        if self.conventions != "torch" and is_foreign(self.model):
            raise TembedError(f"`conventions` does not apply to {self.model}, which has its own; leave it out")
        if self.freeze and self.start_scale != 1:
            raise TembedError("`start_scale` does not go with `freeze`, which computes features once; leave it out")
        for name, usual in (("flips", "random"), ("crops", "padded"), ("left_out", "nothing")):
            if self.freeze and getattr(self, name) != usual:
                raise TembedError(f"`{name}` does not go with `freeze`, which computes features once; leave it out")

    def _size_of_init(self, root: str | Path | None) -> int | None:
        """The size at which the weights of `init` were trained, if it is not that of the data; else None."""
        from tembed.models.foreign import is_ours

        if self.init in (None, "random") or not is_ours(self.model):
            return None
        from tembed.lab.data.getting import stored_side  # these import NumPy and torch, and look at the disk
        from tembed.lab.training.initial_weights import trained_size

        side, size = stored_side(self.data, root), trained_size(str(self.init))
        return None if side in (None, size) else size

    def _complete_constants(self, model: str, maximizer: str | None) -> dict[str, Any]:
        """The fields ``mu``, ``eta``, ``eps`` and ``constants`` for the maximizer of the completed recipe."""
        from tembed import maximizers

        if maximizer is not None:
            check_name("maximizer", maximizer, maximizers.names())
        known = maximizers.constants(maximizer) if maximizer is not None else {}
        which = f"{model} with the maximizer {maximizer or MAXIMIZER}, which has no such constant"
        filled: dict[str, Any] = {}
        for name in MARGIN_CONSTANTS:
            given = getattr(self, name)
            if given is not None and name not in known:
                raise TembedError(f"`{name}` does not apply to {which}; leave it out")
            filled[name] = given if given is not None else known.get(name)
        others = {name: value for name, value in known.items() if name not in MARGIN_CONSTANTS}
        for name, _ in self.constants:
            if name in MARGIN_CONSTANTS:
                raise TembedError(f"{name!r} in `constants` has a field of its own: give `{name}` instead")
            if name not in others:
                raise TembedError(f"{name!r} in `constants` does not apply to {which}{nearest(name, others)}")
        filled["constants"] = tuple(sorted((others | dict(self.constants)).items()))
        return filled

    def model_options(self) -> dict[str, Any]:
        """The options of a complete recipe for `create_model`, or for an attached network."""
        from tembed.models.foreign import is_foreign

        options = {
            each.name: getattr(self, each.name)
            for each in _OPTIONS
            if each.name != "weight" and getattr(self, each.name) not in (None, each.default)
        }
        options |= {name: getattr(self, name) for name in MARGIN_CONSTANTS if getattr(self, name) is not None}
        if is_foreign(self.model):  # images for other networks are resized before they reach them
            options |= {name: getattr(self, name) for name in ("freeze", "image_size") if getattr(self, name)}
        if self.conventions != "torch":
            options["conventions"] = self.conventions
        return options | dict(self.constants)

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain JSON values. ``constants`` is an object, and absent if empty."""
        values = dataclasses.asdict(self) | {"betas": list(self.betas), "constants": dict(self.constants)}
        if not self.constants:
            del values["constants"]
        return values

    @classmethod
    def from_json(cls, values: Any) -> "Recipe":
        """The recipe that `to_json` describes. Fields that are absent have their defaults.

        Names of networks, optimizers and maximizers are not looked up, so the record of a run can be read without the
        plugins it was trained with. Raises `TembedError` if ``values`` is not a recipe.
        """
        if not isinstance(values, dict):
            raise TembedError(f"a recipe is a table of fields, not {values!r}")
        values = dict(values)
        for name in values:
            if name not in _FIELDS:
                raise TembedError(f"a recipe has no field {name!r}{nearest(str(name), _FIELDS)}")
        for name in ("model", "data"):
            if name not in values:
                raise TembedError(f"this recipe has no {name!r}; every recipe needs one")
        if "constants" in values:
            values["constants"] = _pairs(values["constants"])
        hints = get_type_hints(cls)
        for name, value in values.items():
            if isinstance(value, str) and not _is_name(value, is_file=name == "data"):
                raise TembedError(f"{name} cannot be {value!r} in a recipe: it is not a name")
            if not fits(value, hints[name]):
                raise TembedError(f"{name} cannot be {value!r} in a recipe{nearest(str(value), choices(hints[name]))}")
        betas, constants = tuple(values.get("betas", cls.betas)), tuple(map(tuple, values.get("constants", ())))
        recipe = cls(**(values | {"betas": betas, "constants": constants}))
        check_ranges(recipe)
        return recipe

    def differences(self, other: "Recipe") -> list[str]:
        """Each field in which the two differ, as ``name: ours, not theirs``."""
        ours, theirs = ({"constants": {}} | recipe.to_json() for recipe in (self, other))
        return [f"{name}: {ours[name]}, not {theirs[name]}" for name in _FIELDS if ours[name] != theirs[name]]


_FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
_OPTIONS = [field for field in dataclasses.fields(NetworkSettings) if "usual" in field.metadata]
"""The fields that apply to some networks only."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "fast": {
        "epochs": 8,  # enough for a first comparison
        "optimizer": "muon",  # 4.3 and 4.6 points more than AdamW after 8 epochs of rn26 and rn26-embed
        "lr": 2e-2,  # the best of 5e-3, 1e-2, 2e-2 and 4e-2, by a small margin
        "schedule": "one-cycle",  # falls to zero, so that the last epochs converge
        "batch_size": 64,  # half the steps of 32 for the same accuracy in a small trial; 128 was less accurate
        "weight_decay": 1e-2,  # AdamW's usual value; not tuned
        "start_scale": 0.75,  # an epoch at 24 pixels takes 0.6 of the time at 32; the last epochs use the full side
    },
    "frozen": {
        "freeze": True,
        "epochs": 30,  # each takes seconds
        "optimizer": "adamw",
        "lr": 3e-3,
        "schedule": "one-cycle",
        "batch_size": 32,  # 2.8 points more than 128 on 520 photographs, which have few steps
        "weight_decay": 1e-2,  # AdamW's usual value; not tuned
    },
}
"""What each preset changes in the paper's training, and why. Network, loss, data and augmentation stay the same.

docs/recipes.md shows the trials behind ``fast``, each run once.
"""

_PRESET_DEFAULTS = {"warmup": None} | {name: _FIELDS[name].default for preset in PRESETS.values() for name in preset}
"""The paper's value of every field that some preset changes."""


def recipe_of(network: Any) -> Recipe:
    """The recipe that a network was trained with. Raises `TembedError` if its description does not say."""
    known = network.description
    if known.recipe is None:
        raise TembedError(f"this {known.model} does not say how it was trained: give a run or a weights file of a run")
    return Recipe.from_json(known.recipe)


def _is_name(text: str, is_file: bool) -> bool:
    """Whether a text from a file can be printed and, if ``is_file``, be a part of the name of a file."""
    return text == one_line(text) and not (is_file and (text.startswith(".") or "/" in text or "\\" in text))


def _pairs(values: Any) -> Any:
    """The pairs of a table of constants. Anything else is returned unchanged, to be refused later."""
    return tuple(sorted(values.items())) if isinstance(values, dict) else values


def _with_warmup(recipe: Recipe) -> Recipe:
    """The recipe with the warm-up of its schedule filled in."""
    if recipe.schedule != "one-cycle" and recipe.warmup is not None:
        raise TembedError(
            f"`warmup` does not apply to the schedule {recipe.schedule}; leave it out, or set `schedule` to one-cycle"
        )
    if recipe.schedule == "one-cycle" and recipe.warmup is None:
        return dataclasses.replace(recipe, warmup=WARMUP)
    return recipe
