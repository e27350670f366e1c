"""Which images are analysed, and how their classes are grouped into super-classes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from tembed.arrays import Int64
from tembed.data import dataset
from tembed.data.splits import shuffled
from tembed.data.types import ImageSet
from tembed.errors import TembedError

PER_CLASS = 80
"""Images per class in the paper (§4.3)."""
IMAGES = 800
"""Default maximum of images in total: 80 of each of 10 classes, 8 of each of 100."""
FEWEST = 2
"""Minimum of images per class: neighbours and probes need other images of the class."""
LISTED = 12
"""Maximum number of class names in an error message."""

Groups = Mapping[str, Sequence[str]]
"""Super-class to its classes."""


def default_per_class(classes: int) -> int:
    """The paper's number of images per class, or fewer if that would exceed `IMAGES` in total."""
    return max(FEWEST, min(PER_CLASS, IMAGES // classes))


def sample(images: ImageSet, images_per_class: int, seed: int = 0) -> ImageSet:
    """``images_per_class`` images of every class, class by class, drawn by ``seed``."""
    if images_per_class < FEWEST:
        raise TembedError(f"`images_per_class` is {images_per_class}; it must be at least {FEWEST}")
    rank = shuffled(len(images), seed)
    chosen = []
    for label, name in enumerate(images.classes):
        indices = np.flatnonzero(images.labels.numpy() == label)
        if len(indices) < images_per_class:
            raise TembedError(
                f"`images_per_class` is {images_per_class}, but class {name!r} has {len(indices)} images in this "
                f"subset: give {len(indices)} or fewer"
            )
        chosen.append(indices[np.argsort(rank[indices])][:images_per_class])
    return images.subset(torch.from_numpy(np.concatenate(chosen)))


def find_groups(data: str, given: Groups | None = None) -> Groups | None:
    """The given grouping, or the one in the dataset's record; None if there is none."""
    return given if given is not None else dataset(data).super_classes or None


def read_groups(path: str | Path) -> Groups:
    """A grouping from a JSON file: ``{"animals": ["cat", "dog"], "vehicles": ["car"]}``."""
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} cannot be read as JSON ({error})") from None
    good = isinstance(found, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in found.values()
    )
    if not good:
        raise TembedError(f'{path} is not a grouping: write {{"super-class": ["class", ...], ...}}')
    return found


def group_labels(groups: Groups, classes: Sequence[str]) -> Int64:
    """The number of each class's group in ``groups``: ``(C,)``. Every class must be in exactly one group."""
    number_of: dict[str, int] = {}
    for number, (group, names) in enumerate(groups.items()):
        if not names:
            raise TembedError(f"super-class {group!r} has no classes")
        for name in names:
            if name not in classes:
                raise TembedError(f"super-class {group!r} lists the unknown class {name!r}; known: {_some(classes)}")
            if name in number_of:
                raise TembedError(f"class {name!r} is in two super-classes")
            number_of[name] = number
    missing = [name for name in classes if name not in number_of]
    if missing:
        raise TembedError(f"no super-class lists {_some(missing)}: put every class into one")
    if len(groups) < 2:
        raise TembedError("a grouping needs at least two super-classes")
    return np.array([number_of[name] for name in classes])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (" …" if len(names) > LISTED else "")
