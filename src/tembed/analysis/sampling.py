"""Which images are looked at, and how their classes are grouped."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from tembed.arrays import Int64
from tembed.data import super_classes
from tembed.data.splits import shuffled
from tembed.data.types import ImageSet
from tembed.errors import TembedError

PER_CLASS = 80
"""Images of a class, as in the paper (§4.3)."""
IMAGES = 800
"""Images in all, unless a number for each class is given: 80 of 10 classes, 8 of 100."""
FEWEST = 2
"""Images of a class: neighbours and probes need images besides the one they judge."""

Groups = Mapping[str, Sequence[str]]


def images_per_class(images: ImageSet, asked: int | None = None) -> int:
    """The number asked for, or the paper's, less if that makes more than `IMAGES`."""
    return asked if asked is not None else max(FEWEST, min(PER_CLASS, IMAGES // len(images.classes)))


def sample(images: ImageSet, per_class: int, seed: int = 0) -> ImageSet:
    """``per_class`` images of every class, class by class, drawn by ``seed``."""
    if per_class < FEWEST:
        raise TembedError(f"--images-per-class is {per_class}: give at least {FEWEST}")
    rank = shuffled(len(images), seed)
    chosen = []
    for label, name in enumerate(images.classes):
        members = np.flatnonzero(images.labels.numpy() == label)
        if len(members) < per_class:
            raise TembedError(
                f"class {name!r} has {len(members)} images in this part of the dataset, fewer than the {per_class} "
                f"asked for: give --images-per-class {len(members)} or less"
            )
        chosen.append(members[np.argsort(rank[members])][:per_class])
    return images.subset(torch.from_numpy(np.concatenate(chosen)))


def find_groups(data: str, given: Groups | None = None) -> Groups | None:
    """The grouping that was given, or the built-in one of a dataset; None if it has none."""
    if given is not None:
        return given
    try:
        return super_classes(data)
    except TembedError:
        return None


def read_groups(path: str | Path) -> Groups:
    """A grouping from a JSON file: ``{"animals": ["cat", "dog"], "vehicles": ["car"]}``."""
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} cannot be read as JSON ({error})") from None
    good = isinstance(found, dict) and all(
        isinstance(members, list) and all(isinstance(name, str) for name in members) for members in found.values()
    )
    if not good:
        raise TembedError(f'{path} is no grouping: write {{"super-class": ["class", ...], ...}}')
    return found


def group_labels(groups: Groups, classes: Sequence[str]) -> Int64:
    """The group of each class, by its place in ``groups``: ``(C,)``. Every class must be in exactly one."""
    place: dict[str, int] = {}
    for number, (group, members) in enumerate(groups.items()):
        if not members:
            raise TembedError(f"super-class {group!r} has no class")
        for name in members:
            if name not in classes:
                raise TembedError(f"super-class {group!r} has the unknown class {name!r}; there are {_some(classes)}")
            if name in place:
                raise TembedError(f"class {name!r} is in two super-classes")
            place[name] = number
    missing = [name for name in classes if name not in place]
    if missing:
        raise TembedError(f"no super-class has {_some(missing)}: put every class into one")
    if len(groups) < 2:
        raise TembedError("a grouping needs at least two super-classes")
    return np.array([place[name] for name in classes])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
