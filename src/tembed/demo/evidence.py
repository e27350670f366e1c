"""What the patches of a trained network say, held against the parts that they show (§3.3, §4.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tembed.data.batches import Batches
from tembed.data.images import ImageSet
from tembed.embedding import half_window
from tembed.errors import TembedError
from tembed.models import Network

SHOWN = 6
"""Images in the report."""
VISIBLE = 8
"""Pixels of a part that a patch must cover to show it."""
KINDS = ("nothing", "shared parts only", "a part of this class alone")


@dataclass(frozen=True)
class Example:
    """An image, ``(3, H, W)`` bytes, its true parts ``(H, W)``, and its patches' probability of the true class."""

    image: Tensor
    part_map: Tensor
    truth: str
    said: str
    belief: Tensor


@dataclass(frozen=True)
class Kind:
    """Patches of a kind: how many, their mean probability of the true class, and the share that finds it."""

    name: str
    patches: int
    belief: float
    right: float


@dataclass(frozen=True)
class Evidence:
    """Means by what a patch shows, over all images, and a few examples."""

    images: int
    kinds: list[Kind]
    examples: list[Example]
    parts: tuple[str, ...]


@torch.no_grad()
def gather_evidence(model: Network, batches: Batches) -> Evidence:
    """The soft-max of each patch's scores, by the kind of part that the patch shows."""
    images = batches.images
    if images.part_map is None:
        raise TembedError("this dataset does not know its parts")
    own = parts_of_one_class(images)
    beliefs, rights, kinds, said = [], [], [], []
    for step, (pixels, labels) in enumerate(batches.epoch(0)):
        output = model(pixels)
        assert output.scores is not None
        belief = output.scores.softmax(1)
        which = batches.indices(0, step)
        beliefs.append(belief[torch.arange(len(labels)), labels])
        rights.append(belief.argmax(1) == labels[:, None, None])
        said.append(output.logits.argmax(1))
        kinds.append(patch_kinds(images.part_map[which], own, belief.shape[2:]))
    belief, right, kind, head = (torch.cat(values) for values in (beliefs, rights, kinds, said))
    table = []
    for number, name in enumerate(KINDS):
        those = kind == number
        count = int(those.sum())
        if count:
            table.append(Kind(name, count, float(belief[those].mean()), float(right[those].float().mean())))
    return Evidence(len(images), table, _examples(images, belief, head), images.parts)


def parts_of_one_class(images: ImageSet) -> Tensor:
    """Whether each part, by its number in the part map, is seen in one class only: ``(parts + 1,)``."""
    assert images.part_map is not None
    seen = torch.zeros(len(images.parts) + 1, len(images.classes), dtype=torch.bool)
    for label in range(len(images.classes)):
        seen[images.part_map[images.labels == label].unique().long(), label] = True
    own = seen.sum(1) == 1
    own[0] = False  # no part at all
    return own


def patch_kinds(part_map: Tensor, own: Tensor, size: torch.Size) -> Tensor:
    """The index into `KINDS` of each patch: ``(N, H, W)`` part numbers to ``(N, *size)``.

    A patch is the image region that its window covers: rows ``s (i - (k-1)//2)`` to ``s (i + k//2 + 1)``.
    """
    kinds = torch.zeros(len(part_map), *size, dtype=torch.int64)
    window, stride = half_window(*size), part_map.shape[1] / size[0]
    some, alone = part_map > 0, own[part_map.long()]
    for row in range(size[0]):
        for column in range(size[1]):
            rows, columns = (
                slice(max(0, round(stride * (at - (k - 1) // 2))), round(stride * (at + k // 2 + 1)))
                for at, k in ((row, window[0]), (column, window[1]))
            )
            shows = some[:, rows, columns].sum((1, 2)) >= VISIBLE
            shows_own = alone[:, rows, columns].sum((1, 2)) >= VISIBLE
            kinds[:, row, column] = torch.where(shows_own, 2, torch.where(shows, 1, 0))
    return kinds


def _examples(images: ImageSet, belief: Tensor, said: Tensor) -> list[Example]:
    """The first image of some classes, spread over all: not chosen by how well they come out."""
    assert images.part_map is not None
    examples, count = [], len(images.classes)
    for label in dict.fromkeys(n * count // SHOWN for n in range(SHOWN)):
        at = int((images.labels == label).nonzero()[0])
        truth, head = images.classes[label], images.classes[int(said[at])]
        examples.append(Example(images.images[at], images.part_map[at], truth, head, belief[at]))
    return examples
