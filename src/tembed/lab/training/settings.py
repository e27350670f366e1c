"""The three parts of a recipe: the network and its loss, the data, and the training (§4).

A `Recipe` is all three at once, so that users see one flat record. Code that needs only a part takes that part.
"""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tembed.common.errors import TembedError
from tembed.paper import EPOCHS, LAMBDA

MAX_EPOCHS = 1_000_000
MAXIMIZER = "bn-relu"
MARGIN_CONSTANTS = ("mu", "eta", "eps")
"""The paper's constants of a maximizer, which have fields of their own."""

Constants = tuple[tuple[str, float], ...]
Split = Literal["paper", "official"]


def option(default: Any = None, *, usual: Any, needs: str) -> Any:
    """A field that `tembed.create_model` takes as an option of some networks.

    ``usual``: its value where it applies and is not given. ``needs``: what a network lacks that has no such option.
    """
    return field(default=default, metadata={"usual": usual, "needs": needs})


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The network, its options, and the loss that belongs to it."""

    model: str
    """a network of `tembed models`, or the paper's label for it; or timm:NAME@LAYER, or my.module:factory@LAYER"""
    weight: float | None = field(default=None, metadata={"usual": LAMBDA, "needs": "patch scores"})
    """lambda, the weight of the patch loss (Eq. 3.1) (default: 0.5 for networks with patch scores)"""
    softmax_on_bn: bool | None = option(usual=False, needs="block with mixing weights")
    """the block's soft-max takes normalised scores (appendix A) (default: True for cifar10 only)"""
    smooth_shortcut: bool | None = option(usual=False, needs="block with a convolution on its shortcut")
    """2x2 mean before the block's shortcut (appendix A), in RN and WRN (default: True for cifar10 only)"""
    norm_shortcut: bool = option(False, usual=False, needs="block with a convolution on its shortcut")
    """batch norm before the block's shortcut, which keeps the share of f' larger; not in the paper"""
    maximizer: str | None = option(usual=MAXIMIZER, needs="slot for a maximizer, unlike the RN networks")
    """what follows the 3x3 convolutions of RN (§4.1): bn-relu, entropic, perturbed, perturbed-sampled or one-hot
    (default: bn-relu)"""
    mu: float | None = None
    """threshold of the maximizer (default: 2.5)"""
    eta: float | None = None
    """scale of the maximizer (default: 17)"""
    eps: float | None = None
    """sharpness of the maximizer (default: 1)"""
    constants: Constants = ()
    """other constants of a registered maximizer, as pairs of name and value (default: its own)"""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The dataset, and which of its images are used for what."""

    data: str
    """a dataset of `tembed data list`"""
    train_images: int | None = None
    """train on this many images only, drawn evenly from the classes (default: all)"""
    split: Split | None = None
    """paper: pooled, 65/15/20 (§4); official: the data's own subsets (default: official for imported data that has
    subsets, else paper)"""
    split_seed: int = 0
    """decides the random split, and which images `train_images` selects"""
    left_out: Literal["nothing", "parts", "cells"] = "nothing"
    """what half of the training images lack, for `tembed judge`: parts (of parts), or one of 4x4 cells (of any data)"""


@dataclass(frozen=True, kw_only=True)
class LengthSettings:
    """How long to train, and with which random numbers."""

    epochs: int = EPOCHS
    """passes over the training images, at most; the paper does not say how many"""
    patience: int | None = None
    """stop after this many epochs without a better validation accuracy (default: never)"""
    seed: int = 0
    """decides the initial weights, the order, the augmentation and the maximizer's noise"""


@dataclass(frozen=True, kw_only=True)
class StartSettings:
    """The weights to start from, and what of them is trained."""

    init: str | None = None
    """weights to start from: a run, a weights file or shipped weights; for an attached network also random
    (default: random for networks of this package, the network's own weights for an attached one)"""
    init_rate: float = 1.0
    """learning rate of the weights that the network starts from, as a share of that of the new ones"""
    image_size: int | None = None
    """resize the images to this shorter side (default: the size at which the weights of `init` were trained if they are
    of a network of this package, else the size of the dataset)"""
    freeze: bool = False
    """keep an attached network as it is up to its layer, and train only the block and a new linear head behind it"""
    conventions: Literal["torch", "keras"] = "torch"
    """keras: batch norm, initial weights, Adam's eps, input scaling, gradient clipping and projection shortcuts as in
    neighbouring code of the paper's authors; the paper names none of them"""


@dataclass(frozen=True, kw_only=True)
class OptimisationSettings:
    """Steps, learning rate, augmentation and regularisation."""

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
    crops: Literal["padded", "resized"] = "padded"
    """padded: a random window of the padded image (§4); resized: a random part of it, 8 to 100 % of its area, resized
    to `image_size` or the full side, for images that are larger than the input"""
    flips: Literal["random", "alternating"] = "random"
    """random: each image is mirrored with probability one half (§4); alternating: in every other epoch"""
    averaging: float = 0.0
    """share of the run at its end over which the weights are averaged; the averages are validated and tested"""
    label_smoothing: float = 0.0
    """share of every target that is spread evenly over all classes"""
    balanced: bool = False
    """give every class the same total weight in the loss, however many training images it has"""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(OptimisationSettings, StartSettings, LengthSettings):
    """Where the weights start and how they are trained."""


PARTS = (NetworkSettings, DataSettings, TrainingSettings)


def names_of(part: type) -> tuple[str, ...]:
    """The names of a part's fields."""
    return tuple(each.name for each in fields(part))


def check_name(field: str, value: str, known: Iterable[str]) -> None:
    """Raise `TembedError` if a name is not one of those that are known."""
    known = list(known)
    if value not in known:
        hint = nearest(str(value), known) or f"; it must be one of {', '.join(known)}"
        raise TembedError(f"`{field}` is {value!r}, which is unknown{hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing if no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_ranges(r: Any) -> None:
    """Raise `TembedError` if a number of a recipe is out of range or a fixed choice is unknown."""
    finite = math.isfinite
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
    for part in PARTS:
        for each in fields(part):
            choices = get_args(each.type) if getattr(each.type, "__origin__", None) is Literal else ()
            if choices:
                check_name(each.name, getattr(r, each.name), choices)
    if r.split is not None:
        check_name("split", r.split, get_args(Split))
