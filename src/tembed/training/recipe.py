"""What is trained, on what, and how (§4): one frozen record for Python, the command line and the run folder.

``Recipe(model, data)`` is the paper's training to the letter, and so is ``Recipe.paper(...)``. ``Recipe.fast(...)``
is the same network, loss and data with another optimisation; `FAST` says what it changes and why.
"""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tembed.errors import TembedError

if TYPE_CHECKING:
    Model = str
else:
    try:  # the marks of the command line; a library without it has no use for them
        from tyro.conf import Positional, arg

        Model = Annotated[str, Positional, arg(metavar="MODEL")]
    except ModuleNotFoundError:
        Model = str

WEIGHT = 0.5
"""The paper's lambda (Eq. 3.1)."""
WARMUP = 0.2
"""Share of a one-cycle run in which the rate rises."""
CONSTANTS = {"entropic": ("mu", "eta", "eps"), "perturbed": ("mu", "eta", "eps"), "one-hot": ("mu", "eta")}
"""The constants that each maximizer has; BN-ReLU has none."""


@dataclass(frozen=True)
class Recipe:
    """What is trained, on what, and how. None stands for "what suits the model and the data": see `complete`."""

    model: Model
    """a network of `tembed models`, or the paper's label for it"""
    data: str
    """a dataset of `tembed data list`"""
    epochs: int = 200
    """passes over the training images; the paper does not say how many"""
    train_images: int | None = None
    """train on this many images only, drawn evenly from the classes"""
    seed: int = 0
    """decides the initial weights, the order, the augmentation and the maximizer's noise"""
    split: Literal["paper", "official"] = "paper"
    """pooled and cut 65/15/20 (§4), or the published train and test sets"""
    split_seed: int = 0
    """which cut, and which images `train_images` takes"""

    batch_size: int = 32
    """images in a step (§4)"""
    lr: float = 1e-3
    """learning rate, the highest one of a schedule (§4)"""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """adam: decay in its gradient (§4); adamw: beside it; muon: orthogonal steps for the kernels, adamw for the rest"""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay of its two means (§4); the first is Muon's momentum, too"""
    weight_decay: float = 1e-4
    """L2 decay of all weights (§4)"""
    schedule: Literal["constant", "one-cycle"] = "constant"
    """one-cycle: linear warm-up, then a cosine to zero; the paper names no schedule"""
    warmup: float | None = None
    """share of the run in which a one-cycle rate rises (0.2)"""
    start_scale: float = 1.0
    """side of the training images in the first epochs, as a share of the full side that it grows to"""

    weight: float | None = None
    """lambda, the weight of the patches' loss (Eq. 3.1): 0.5 for the -embed and -aux models, which have it"""
    softmax_on_bn: bool | None = None
    """the block's soft-max takes normalised scores (§4): on for cifar10 only"""
    smooth_shortcut: bool | None = None
    """2x2 mean before the block's shortcut (§4): on for cifar10 only, in RN and WRN"""
    maximizer: Literal["bn-relu", "entropic", "perturbed", "perturbed-sampled", "one-hot"] | None = None
    """what follows the 3x3 convolutions of RN (§4.1): bn-relu"""
    mu: float | None = None
    """threshold of the maximizer (2.5)"""
    eta: float | None = None
    """scale of the maximizer (17)"""
    eps: float | None = None
    """sharpness of the maximizer (1)"""

    @classmethod
    def paper(cls, model: str, data: str, **changes: Any) -> "Recipe":
        """The paper's training (§4), with these fields changed."""
        return _named(model, data, {}, changes)

    @classmethod
    def fast(cls, model: str, data: str, **changes: Any) -> "Recipe":
        """The most accuracy for few epochs: `FAST`, with these fields changed."""
        return _named(model, data, FAST, changes)

    @property
    def preset(self) -> str:
        """``paper`` or ``fast`` if the optimisation is that of one, else ``own``."""
        for name, preset in (("paper", {}), ("fast", FAST)):
            like = dataclasses.replace(self, **{**_DEFAULTS, **preset, "epochs": self.epochs})
            if _complete_schedule(like) == _complete_schedule(self):
                return name
        return "own"

    def complete(self) -> "Recipe":
        """This recipe with every field that has a meaning for its model and data filled in, and the others None.

        Raises `TembedError` for a value that is out of range or set on what does not have it.
        """
        from tembed import maximizers
        from tembed.models import canonical_name
        from tembed.models.registry import model_options

        _check_ranges(self)
        model = canonical_name(self.model)
        options = model_options(model)
        settled = _complete_schedule(dataclasses.replace(self, model=model))
        fill: dict[str, Any] = {}
        tricks = self.data == "cifar10"
        densenet = model.startswith("dn")
        for name, has, default in (
            ("weight", "window" in options, WEIGHT),
            ("softmax_on_bn", "softmax_on_bn" in options, tricks),
            ("smooth_shortcut", "smooth_shortcut" in options, tricks and not densenet),
            ("maximizer", "maximizer" in options, "bn-relu"),
        ):
            given = getattr(self, name)
            if given is not None and not has:
                raise TembedError(f"{_flag(name)} does not apply to {model}: {_WHY[name]}; leave it out")
            fill[name] = given if given is not None else default if has else None
        maximizer = str(fill["maximizer"]).removesuffix("-sampled")
        for name in ("mu", "eta", "eps"):
            has, given = name in CONSTANTS.get(maximizer, ()), getattr(self, name)
            if given is not None and not has:
                raise TembedError(
                    f"{_flag(name)} does not apply to {model} with the maximizer {fill['maximizer'] or 'bn-relu'}, "
                    "which has no such constant; leave it out"
                )
            fill[name] = given if given is not None else getattr(maximizers, name.upper()) if has else None
        return dataclasses.replace(settled, **fill)

    def model_options(self) -> dict[str, Any]:
        """What a complete recipe gives to `create_model`."""
        names = ("softmax_on_bn", "smooth_shortcut", "maximizer", "mu", "eta", "eps")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def plain(self) -> dict[str, Any]:
        """The recipe as JSON holds it."""
        return dataclasses.asdict(self) | {"betas": list(self.betas)}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Recipe":
        """A recipe from what `plain` gave, now or in a version with fewer fields; `TembedError` if it is none."""
        if isinstance(values, dict) and "decoupled" in values:  # how the first recipes chose between Adam and AdamW
            values = {"optimizer": "adamw" if values["decoupled"] else "adam", **values}
            del values["decoupled"]
        needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
        hints = get_type_hints(cls)
        if not isinstance(values, dict) or not needed <= set(values) <= set(hints):
            odd = (
                sorted(map(str, needed - set(values) | set(values) - set(hints)))
                if isinstance(values, dict)
                else values
            )
            raise TembedError(f"this is no recipe of this version of tembed: look at {odd!r}")
        for name, value in values.items():
            if not _fits(value, hints[name]):
                raise TembedError(f"{name} cannot be {value!r} in a recipe")
        recipe = cls(**(values | {"betas": tuple(values.get("betas", cls.betas))}))
        _check_ranges(recipe)
        return recipe

    def differences(self, other: "Recipe") -> list[str]:
        """Each field in which ``other`` is not as this one, as ``name: here, there``."""
        ours, theirs = self.plain(), other.plain()
        return [f"{name}: {ours[name]}, not {theirs[name]}" for name in ours if ours[name] != theirs[name]]


FAST: dict[str, Any] = {
    "epochs": 8,  # enough for a first comparison
    "optimizer": "muon",  # 4.3 and 4.6 points more than AdamW after 8 epochs of rn26 and rn26-embed
    "lr": 2e-2,  # the best of 5e-3, 1e-2, 2e-2 and 4e-2, by little
    "schedule": "one-cycle",  # end at rate zero: the last epochs settle what the first ones found
    "batch_size": 64,  # half the steps and half the time in the optimizer; not varied
    "weight_decay": 1e-2,  # AdamW's usual one; not varied
    "start_scale": 0.75,  # at 24 pixels an epoch costs 0.56 of one at 32; the last ones are at the full side
}
"""What the fast recipe changes of the paper's, and why. Network, loss, data and augmentation stay the same.

docs/recipes.md has what was tried for it, each once.
"""

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Recipe) if field.name in FAST} | {"warmup": None}

_WHY = {
    "weight": "it has no patch scores to weigh",
    "softmax_on_bn": "it has no block with mixing weights",
    "smooth_shortcut": "it has no block with a convolution on its shortcut",
    "maximizer": "only the RN networks have that slot",
}


def _named(model: str, data: str, preset: dict[str, Any], changes: dict[str, Any]) -> Recipe:
    return Recipe(model, data, **(preset | changes))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value can stand for a field of this type."""
    kinds = get_args(hint)
    if get_origin(hint) is Literal:
        return value in kinds
    if get_origin(hint) is tuple:
        return isinstance(value, list | tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if kinds:  # a union
        return any(_fits(value, kind) for kind in kinds)
    return type(value) is hint or (hint is float and type(value) is int)


def _complete_schedule(recipe: Recipe) -> Recipe:
    if recipe.schedule == "constant" and recipe.warmup is not None:
        raise TembedError("--warmup does not apply to a constant rate; leave it out, or give --schedule one-cycle")
    if recipe.schedule == "one-cycle" and recipe.warmup is None:
        return dataclasses.replace(recipe, warmup=WARMUP)
    return recipe


def _check_ranges(recipe: Recipe) -> None:
    r = recipe
    for name, right, must in (
        ("epochs", r.epochs >= 1, "at least 1"),
        ("train_images", r.train_images is None or r.train_images >= 1, "at least 1"),
        ("seed", r.seed >= 0, "at least 0"),
        ("split_seed", r.split_seed >= 0, "at least 0"),
        ("split", r.split in ("paper", "official"), "paper or official"),
        ("batch_size", r.batch_size >= 2, "at least 2: batch normalisation needs more than one image"),
        ("optimizer", r.optimizer in ("adam", "adamw", "muon"), "adam, adamw or muon"),
        ("lr", 0 < r.lr < float("inf"), "positive"),
        ("betas", all(0 <= beta < 1 for beta in r.betas), "from 0 to below 1"),
        ("weight_decay", 0 <= r.weight_decay < float("inf"), "at least 0"),
        ("schedule", r.schedule in ("constant", "one-cycle"), "constant or one-cycle"),
        ("warmup", r.warmup is None or 0 <= r.warmup < 1, "from 0 to below 1"),
        ("start_scale", 0.25 <= r.start_scale <= 1, "from 0.25 to 1"),
        ("weight", r.weight is None or 0 <= r.weight <= 1, "from 0 to 1"),
    ):
        if not right:
            raise TembedError(f"{_flag(name)} is {getattr(r, name)}; it must be {must}")
