"""Which images are analysed, and how their classes are grouped into super-classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from tembed.common.arrays import Int64
from tembed.common.errors import TembedError
from tembed.common.files import parse_json, read_file
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.splits import shuffled

PER_CLASS = 80
"""Images per class in the paper (§4.3)."""
IMAGES = 800
"""Default maximum of images in total: 80 of each of 10 classes, 8 of each of 100."""
FAST_IMAGES = 100
"""The same for a first look."""
FEWEST = 2
"""Minimum of images per class: neighbours and probes need other images of the class."""
LISTED = 12
"""Maximum number of class names in an error message."""

Groups = Mapping[str, Sequence[str]]
"""Super-class to its classes."""


def default_per_class(classes: int, *, fast: bool = False) -> int:
    """The paper's number of images per class, or fewer if that would exceed `IMAGES` (or `FAST_IMAGES`) in total."""
    return max(FEWEST, min(PER_CLASS, (FAST_IMAGES if fast else IMAGES) // classes))


def sample(images: ImageSet, images_per_class: int, seed: int = 0) -> ImageSet:
    """``images_per_class`` images of every class, class by class, drawn by ``seed``."""
    if images_per_class < FEWEST:
        raise TembedError(f"`images_per_class` is {images_per_class}; it must be at least {FEWEST}")
    counts = images.labels.bincount(minlength=len(images.classes)).tolist()
    for name, count in zip(images.classes, counts, strict=True):
        if count < images_per_class:
            images_of = "no images" if count == 0 else "1 image" if count == 1 else f"{count} images"
            way_out = f"give {count} or fewer" if count >= FEWEST else "leave it out, and such classes are skipped"
            raise TembedError(
                f"`images_per_class` is {images_per_class}, but class {name!r} has {images_of} in this subset: "
                f"{way_out}"
            )
    return _drawn(images, [images_per_class] * len(counts), seed)


def default_sample(images: ImageSet, seed: int = 0, progress: Progress = SILENT, *, fast: bool = False) -> ImageSet:
    """The paper's number of images of each class, or as many as there are; classes with a single image are left out.

    ``fast``: only a few images of each, for a first look.
    """
    wanted = default_per_class(len(images.classes), fast=fast)
    counts = images.labels.bincount(minlength=len(images.classes)).tolist()
    left_out = [name for name, count in zip(images.classes, counts, strict=True) if count < FEWEST]
    taken = [min(wanted, count) if count >= FEWEST else 0 for count in counts]
    used = [count for count in taken if count]
    if len(used) < 2:
        raise TembedError(
            f"an analysis compares classes with {FEWEST} or more test images, and this dataset has {len(used)} of "
            "them: import more images, or train with a split that has more test images"
        )
    if left_out:
        progress.say(f"left out, with fewer than {FEWEST} test images: {_some(left_out)}")
    if min(used) < PER_CLASS:
        amount = str(min(used)) if min(used) == max(used) else f"{min(used)} to {max(used)}"
        progress.say(f"using {amount} test images of each of {len(used)} classes")
    return _drawn(images, taken, seed)


def _drawn(images: ImageSet, counts: Sequence[int], seed: int) -> ImageSet:
    """This many images of each class."""
    rank, labels = shuffled(len(images), seed), images.labels.numpy()
    chosen = []
    for label, count in enumerate(counts):
        indices = np.flatnonzero(labels == label)
        chosen.append(indices[np.argsort(rank[indices])][:count])
    return images.subset(torch.from_numpy(np.concatenate(chosen)))


def find_groups(data: str, given: Groups | None = None) -> Groups | None:
    """The given grouping, or the one in the dataset's record; None if there is none."""
    return given if given is not None else dataset(data).super_classes or None


def read_groups(path: str | Path) -> Groups:
    """A grouping from a JSON file: ``{"animals": ["cat", "dog"], "vehicles": ["car"]}``."""
    try:
        found = parse_json(read_file(Path(path)))
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
