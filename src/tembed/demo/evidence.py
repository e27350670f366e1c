"""What the patches of a trained network say, held against the parts that they show (§3.3, §4.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tembed.analysis.claims.parts import VISIBLE, classes_with_part, part_pixels
from tembed.analysis.features import window_of
from tembed.data.batches import Batches
from tembed.data.types import ImageSet
from tembed.errors import TembedError
from tembed.models import Network

SHOWN = 6
"""Images in the report."""
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
    own = torch.from_numpy(classes_with_part(images).sum(1) == 1)
    beliefs, rights, kinds, said = [], [], [], []
    for step, (pixels, labels) in enumerate(batches.epoch(0)):
        output = model(pixels)
        assert output.scores is not None
        belief = output.scores.softmax(1)
        which = batches.indices(0, step)
        beliefs.append(belief[torch.arange(len(labels)), labels])
        rights.append(belief.argmax(1) == labels[:, None, None])
        said.append(output.logits.argmax(1))
        size = (belief.shape[2], belief.shape[3])
        counts = part_pixels(images.part_map[which], len(images.parts), size, window_of(model.block, size))
        kinds.append(patch_kinds(counts, own))
    belief, right, kind, head = (torch.cat(values) for values in (beliefs, rights, kinds, said))
    table = []
    for number, name in enumerate(KINDS):
        those = kind == number
        count = int(those.sum())
        if count:
            table.append(Kind(name, count, float(belief[those].mean()), float(right[those].float().mean())))
    return Evidence(len(images), table, _examples(images, belief, head), images.parts)


def patch_kinds(counts: Tensor, own: Tensor) -> Tensor:
    """The index into `KINDS` of each patch, from the pixels of each part in it; ``own``: the parts of one class."""
    shows = counts[..., 1:].sum(-1) >= VISIBLE
    shows_own = counts[..., own].sum(-1) >= VISIBLE
    return torch.where(shows_own, 2, torch.where(shows, 1, 0))


def _examples(images: ImageSet, belief: Tensor, said: Tensor) -> list[Example]:
    """The first image of some classes, spread over all: not chosen by how well they come out."""
    assert images.part_map is not None
    examples, count = [], len(images.classes)
    for label in dict.fromkeys(n * count // SHOWN for n in range(SHOWN)):
        at = int((images.labels == label).nonzero()[0])
        truth, head = images.classes[label], images.classes[int(said[at])]
        examples.append(Example(images.images[at], images.part_map[at], truth, head, belief[at]))
    return examples
