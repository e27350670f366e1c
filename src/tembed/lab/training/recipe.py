"""What is trained, on what, and how (§4): one frozen record for Python, the command line and the run folder.

``Recipe(model, data)`` is exactly the paper's training. ``Recipe.from_preset`` starts from a named set of
defaults instead; `PRESETS` lists them and says what each changes and why.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from tembed.common.errors import TembedError, one_line
from tembed.paper import LAMBDA

WARMUP = 0.2
"""Share of a one-cycle run during which the rate rises."""
MAX_EPOCHS = 1_000_000
MAXIMIZER = "bn-relu"
MARGIN_CONSTANTS = ("mu", "eta", "eps")
"""The paper's constants of a maximizer, which have fields of their own."""

Constants = tuple[tuple[str, float], ...]
Split = Literal["paper", "official"]


@dataclass(frozen=True)
class Recipe:
    """What is trained, on what, and how. None means "what suits the model and the data"; `complete` fills it in."""

    model: str
    """a network of `tembed models`, or the paper's label for it; or timm:NAME@LAYER, or my.module:factory@LAYER"""
    data: str
    """a dataset of `tembed data list`"""
    epochs: int = 200
    """passes over the training images, at most; the paper does not say how many"""
    patience: int | None = None
    """stop after this many epochs without a better validation accuracy"""
    train_images: int | None = None
    """train on this many images only, drawn evenly from the classes"""
    seed: int = 0
    """decides the initial weights, the order, the augmentation and the maximizer's noise"""
    split: Split | None = None
    """paper: pooled, 65/15/20 (§4); official: the data's own subsets, the default for imported data that has them"""
    split_seed: int = 0
    """decides the random split, and which images `train_images` selects"""

    init: str | None = None
    """weights to start from: a run, a weights file or shipped weights; for an attached network also random"""
    init_rate: float = 1.0
    """learning rate of the weights that the network starts from, as a share of that of the new ones"""
    image_size: int | None = None
    """resize the images to this shorter side for an attached network"""
    freeze: bool = False
    """keep an attached network as it is up to its layer, and train only the block and a new linear head behind it"""

    batch_size: int = 32
    """images per step (§4)"""
    lr: float = 1e-3
    """learning rate (§4); with a schedule, the highest one"""
    optimizer: str = "adam"
    """adam: decay in the gradient (§4); adam-kernels: the same for convolution kernels only; adamw: decoupled decay;
    muon: orthogonal steps for kernels, adamw for others"""
    betas: tuple[float, float] = (0.9, 0.999)
    """decay rates of Adam's two means (§4); the first is also Muon's momentum"""
    weight_decay: float = 1e-4
    """L2 decay of all weights (§4)"""
    schedule: Literal["constant", "one-cycle", "plateau"] = "constant"
    """one-cycle: linear warm-up, then a cosine to zero; plateau: halved after 5 epochs without a better validation
    accuracy; the paper names no schedule"""
    warmup: float | None = None
    """share of the run during which a one-cycle rate rises (default: 0.2)"""
    start_scale: float = 1.0
    """side of the training images in the first epoch, as a share of the full side; it grows to the full side"""
    flips: Literal["random", "alternating"] = "random"
    """random: each image is mirrored with probability one half (§4); alternating: in every other epoch"""
    averaging: float = 0.0
    """share of the run at its end over which the weights are averaged; the averages are validated and tested"""
    label_smoothing: float = 0.0
    """share of every target that is spread evenly over all classes"""
    balanced: bool = False
    """give every class the same total weight in the loss, however many training images it has"""

    conventions: Literal["torch", "keras"] = "torch"
    """keras: batch norm, initial weights, Adam's eps, input scaling, gradient clipping and projection shortcuts as in
    neighbouring code of the paper's authors; the paper names none of them"""
    weight: float | None = None
    """lambda, the weight of the patch loss (Eq. 3.1): 0.5 for networks with patch scores, such as -embed and -aux"""
    softmax_on_bn: bool | None = None
    """the block's soft-max takes normalised scores (appendix A): on for cifar10 only"""
    smooth_shortcut: bool | None = None
    """2x2 mean before the block's shortcut (appendix A): on for cifar10 only, in RN and WRN"""
    norm_shortcut: bool = False
    """batch norm before the block's shortcut, which keeps the share of f' larger; not in the paper"""
    maximizer: str | None = None
    """what follows the 3x3 convolutions of RN (§4.1): bn-relu (default), entropic, perturbed(-sampled), one-hot"""
    mu: float | None = None
    """threshold of the maximizer (default: 2.5)"""
    eta: float | None = None
    """scale of the maximizer (default: 17)"""
    eps: float | None = None
    """sharpness of the maximizer (default: 1)"""
    constants: Constants = ()
    """other constants of a registered maximizer, as pairs of name and value"""

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
        _check_name("preset", preset, PRESETS)
        for name in changes:
            if name not in _FIELDS:
                raise TembedError(f"a recipe has no field {name!r}{_nearest(name, _FIELDS)}")
        return cls(model, data, **(PRESETS[preset] | changes))

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
        _check_name("optimizer", self.optimizer, optimizer_names())
        info = model_info(self.model)
        self._check_attached()
        defaults: dict[str, Any] = {
            "weight": LAMBDA,
            "softmax_on_bn": False,
            "smooth_shortcut": False,
            "maximizer": MAXIMIZER,
        }
        for source in (dataset(self.data).block_options, info.defaults or {}):
            for name in source:
                if name not in defaults:
                    raise TembedError(
                        f"{info.name} or {self.data} has a default for {name!r}, which is not a field of a recipe"
                        f"{_nearest(name, defaults)}"
                    )
            defaults |= source
        filled: dict[str, Any] = {"model": info.name}
        if self.split is None:
            from tembed.lab.data.splits import default_split  # imports NumPy and looks at the disk

            filled["split"] = default_split(self.data, root)
        for name, default in defaults.items():
            applies, given = info.has_scores if name == "weight" else name in info.options, getattr(self, name)
            if given is not None and not applies:
                raise TembedError(f"`{name}` does not apply to {info.name}: {_WHY_NOT[name]}; leave it out")
            filled[name] = given if given is not None else default if applies else None
        if self.norm_shortcut and "norm_shortcut" not in info.options:
            raise TembedError(
                f"`norm_shortcut` does not apply to {info.name}: {_WHY_NOT['smooth_shortcut']}; leave it out"
            )
        filled |= self._complete_constants(info.name, filled["maximizer"])
        return dataclasses.replace(_with_warmup(self), **filled)

    def _check_attached(self) -> None:
        """Raise `TembedError` for fields that do not go with the network, with each other or with `freeze`."""
        from tembed.models.foreign import is_foreign

        for name in ("image_size", "freeze"):
            if getattr(self, name) and not is_foreign(self.model):
                raise TembedError(
                    f"`{name}` does not apply to {self.model}, only to attached networks such as timm:NAME@LAYER or "
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
        if self.freeze and self.flips != "random":
            raise TembedError("`flips` does not go with `freeze`, which computes features once; leave it out")

    def _complete_constants(self, model: str, maximizer: str | None) -> dict[str, Any]:
        """The fields ``mu``, ``eta``, ``eps`` and ``constants`` for the maximizer of the completed recipe."""
        from tembed import maximizers

        if maximizer is not None:
            _check_name("maximizer", maximizer, maximizers.names())
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
                raise TembedError(f"{name!r} in `constants` does not apply to {which}{_nearest(name, others)}")
        filled["constants"] = tuple(sorted((others | dict(self.constants)).items()))
        return filled

    def model_options(self) -> dict[str, Any]:
        """The options of a complete recipe for `create_model`."""
        names = ("softmax_on_bn", "smooth_shortcut", "maximizer", *MARGIN_CONSTANTS)
        options = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.norm_shortcut:
            options["norm_shortcut"] = True
        if self.conventions != "torch":
            options["conventions"] = self.conventions
        return options | dict(self.constants)

    def plain(self) -> dict[str, Any]:
        """The recipe as plain JSON values. ``constants`` is an object, and absent if empty."""
        values = dataclasses.asdict(self) | {"betas": list(self.betas), "constants": dict(self.constants)}
        if not self.constants:
            del values["constants"]
        return values

    @classmethod
    def from_plain(cls, values: Any) -> "Recipe":
        """The recipe that `plain` describes, even if an older version with fewer fields wrote it.

        Names of networks, optimizers and maximizers are not looked up, so the record of a run can be read without the
        plugins it was trained with. Raises `TembedError` if ``values`` is not a recipe.
        """
        if not isinstance(values, dict):
            raise TembedError(f"a recipe is a table of fields, not {values!r}")
        values = dict(values)
        if "decoupled" in values:  # how the earliest recipes chose between Adam and AdamW
            decoupled = values.pop("decoupled")
            values.setdefault("optimizer", "adamw" if decoupled else "adam")
        for name in values:
            if name not in _FIELDS:
                raise TembedError(f"a recipe has no field {name!r}{_nearest(str(name), _FIELDS)}")
        for name in ("model", "data"):
            if name not in values:
                raise TembedError(f"this recipe has no {name!r}; every recipe needs one")
        if "constants" in values:
            values["constants"] = _pairs(values["constants"])
        hints = get_type_hints(cls)
        for name, value in values.items():
            if isinstance(value, str) and not _is_name(value, is_file=name == "data"):
                raise TembedError(f"{name} cannot be {value!r} in a recipe: it is not a name")
            if not _fits(value, hints[name]):
                raise TembedError(
                    f"{name} cannot be {value!r} in a recipe{_nearest(str(value), _choices(hints[name]))}"
                )
        betas, constants = tuple(values.get("betas", cls.betas)), tuple(map(tuple, values.get("constants", ())))
        recipe = cls(**(values | {"betas": betas, "constants": constants}))
        check_ranges(recipe)
        return recipe

    def differences(self, other: "Recipe") -> list[str]:
        """Each field in which the two differ, as ``name: ours, not theirs``."""
        ours, theirs = ({"constants": {}} | recipe.plain() for recipe in (self, other))
        return [f"{name}: {ours[name]}, not {theirs[name]}" for name in _FIELDS if ours[name] != theirs[name]]


_FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}

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
        "batch_size": 128,
        "weight_decay": 1e-2,  # AdamW's usual value; not tuned
    },
}
"""What each preset changes in the paper's training, and why. Network, loss, data and augmentation stay the same.

docs/recipes.md shows the trials behind ``fast``, each run once.
"""

_PRESET_DEFAULTS = {"warmup": None} | {name: _FIELDS[name].default for preset in PRESETS.values() for name in preset}
"""The paper's value of every field that some preset changes."""

_WHY_NOT = {
    "weight": "it has no patch scores",
    "softmax_on_bn": "it has no block with mixing weights",
    "smooth_shortcut": "it has no block with a convolution on its shortcut",
    "maximizer": "unlike the RN networks, it has no slot for a maximizer",
}


def check_ranges(recipe: Recipe) -> None:
    """Raise `TembedError` if a number of the recipe is out of range or a fixed choice is unknown."""
    r, finite = recipe, math.isfinite
    for name, valid, must in (
        ("epochs", 1 <= r.epochs <= MAX_EPOCHS, f"from 1 to {MAX_EPOCHS:,}"),
        ("patience", r.patience is None or r.patience >= 1, "at least 1"),
        ("train_images", r.train_images is None or r.train_images >= 1, "at least 1"),
        ("seed", r.seed >= 0, "at least 0"),
        ("split_seed", r.split_seed >= 0, "at least 0"),
        ("batch_size", r.batch_size >= 1, "at least 1"),
        ("image_size", r.image_size is None or r.image_size >= 8, "at least 8"),
        ("lr", 0 < r.lr < math.inf, "positive"),
        ("init_rate", 0 <= r.init_rate <= 1, "from 0 to 1"),
        ("betas", all(0 <= beta < 1 for beta in r.betas), "from 0 to below 1"),
        ("weight_decay", 0 <= r.weight_decay < math.inf, "at least 0"),
        ("warmup", r.warmup is None or 0 <= r.warmup < 1, "from 0 to below 1"),
        ("start_scale", 0.25 <= r.start_scale <= 1, "from 0.25 to 1"),
        ("averaging", 0 <= r.averaging <= 1, "from 0 to 1"),
        ("label_smoothing", 0 <= r.label_smoothing < 1, "from 0 to below 1"),
        ("weight", r.weight is None or 0 <= r.weight <= 1, "from 0 to 1"),
        ("mu", r.mu is None or finite(r.mu), "finite"),
        ("eta", r.eta is None or 0 < r.eta < math.inf, "positive and finite"),
        ("eps", r.eps is None or 0 < r.eps < math.inf, "positive and finite"),
        ("constants", all(finite(value) for _, value in r.constants), "finite"),
        ("constants", len(dict(r.constants)) == len(r.constants), "free of repeated names"),
    ):
        if not valid:
            raise TembedError(f"`{name}` is {getattr(r, name)}; it must be {must}")
    if r.split is not None:
        _check_name("split", r.split, get_args(Split))
    for name in ("schedule", "flips", "conventions"):
        _check_name(name, getattr(r, name), get_args(_FIELDS[name].type))


def _check_name(field: str, value: str, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        hint = _nearest(str(value), known) or f"; it must be one of {', '.join(known)}"
        raise TembedError(f"`{field}` is {value!r}, which is unknown{hint}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing if no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _is_name(text: str, is_file: bool) -> bool:
    """Whether a text from a file can be printed and, if ``is_file``, be a part of the name of a file."""
    return text == one_line(text) and not (is_file and (text.startswith(".") or "/" in text or "\\" in text))


def _pairs(values: Any) -> Any:
    """The pairs of a table of constants. Anything else is returned unchanged, to be refused later."""
    return tuple(sorted(values.items())) if isinstance(values, dict) else values


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a field's type."""
    kinds = get_args(hint)
    if get_origin(hint) is Literal:
        return value in kinds
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            return False
        if kinds[-1] is Ellipsis:
            return all(_fits(each, kinds[0]) for each in value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if kinds:  # a union
        return any(_fits(value, kind) for kind in kinds)
    return type(value) is hint or (hint is float and type(value) is int)


def _choices(hint: Any) -> tuple[str, ...]:
    """The values of a fixed choice, also of one that may be None."""
    kinds = get_args(hint)
    return kinds if get_origin(hint) is Literal else tuple(choice for kind in kinds for choice in _choices(kind))


def _with_warmup(recipe: Recipe) -> Recipe:
    """The recipe with the warm-up of its schedule filled in."""
    if recipe.schedule != "one-cycle" and recipe.warmup is not None:
        raise TembedError(
            f"`warmup` does not apply to the schedule {recipe.schedule}; leave it out, or set `schedule` to one-cycle"
        )
    if recipe.schedule == "one-cycle" and recipe.warmup is None:
        return dataclasses.replace(recipe, warmup=WARMUP)
    return recipe
