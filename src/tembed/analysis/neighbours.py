"""Exact neighbours and mean distances among the points, a block of rows of the distance matrix at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.arrays import Floats, Int64

VALUES = 1 << 24
"""Distances held at a time: 64 MB."""


@dataclass(frozen=True)
class Neighbourhood:
    """Of each point, over the points of *other* images alone: patches of one image are near duplicates.

    ``nearest``: ``(P, k)``, the nearest points. ``distances``: ``(P, G)``, the mean distance to each group.
    """

    nearest: Int64
    distances: NDArray[np.float64]


def squared_distances(x: Tensor, multiple: int = 1) -> Iterator[tuple[int, Tensor]]:
    """The first row of each block, and the block ``(rows, P)`` of squared distances; rows a multiple of this number."""
    x = x - x.mean(0)
    lengths = x.square().sum(1)
    rows = max(1, VALUES // len(x) // multiple) * multiple
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        yield start, torch.addmm(lengths, block, x.T, alpha=-2).add_(lengths[start : start + rows, None]).clamp_(min=0)


def nearest(points: Floats, count: int) -> tuple[Int64, Floats]:
    """The ``count`` nearest other points of each point, and their distances: ``(P, count)``, nearest first."""
    x = torch.from_numpy(points)
    places, distances = [], []
    for start, block in squared_distances(x):
        own = torch.arange(len(block))
        block[own, own + start] = torch.inf
        found = block.topk(count, dim=1, largest=False).indices
        # The expanded square loses small distances to rounding; those of the few that were found are cheap to redo.
        exact = torch.stack([(x[found[:, k]] - x[start : start + len(block)]).norm(dim=1) for k in range(count)], 1)
        exact, order = exact.sort(dim=1, stable=True)
        places.append(found.gather(1, order))
        distances.append(exact)
    return torch.cat(places).numpy(), torch.cat(distances).numpy()


def neighbourhood(points: Floats, per_image: int, group_of: Int64, groups: int, count: int) -> Neighbourhood:
    """The `Neighbourhood` of points that are ordered by image; ``group_of``: ``(P,)``, each point's group.

    All points of an image are of one group.
    """
    x = torch.from_numpy(points)
    member = torch.nn.functional.one_hot(torch.from_numpy(group_of), groups).to(x.dtype)
    sizes = member.sum(0).double()
    places, means = [], []
    for start, block in squared_distances(x, per_image):
        block.sqrt_()
        total = (block @ member).double()
        counts = sizes.expand(len(block), -1).clone()
        for first in range(0, len(block), per_image):
            rows, own = slice(first, first + per_image), slice(start + first, start + first + per_image)
            group = int(group_of[start + first])
            total[rows, group] -= block[rows, own].sum(1).double()
            counts[rows, group] -= per_image
            block[rows, own] = torch.inf
        places.append(block.topk(count, dim=1, largest=False).indices)
        means.append(total / counts)
    return Neighbourhood(torch.cat(places).numpy(), torch.cat(means).numpy())


def purity(neighbours: Int64, labels: Int64) -> NDArray[np.float64]:
    """The share of each point's neighbours that have its label: ``(P,)``."""
    return (labels[neighbours] == labels[:, None]).mean(1)


def silhouette(distances: NDArray[np.float64], labels: Int64) -> NDArray[np.float64]:
    """``(b - a) / max(a, b)`` of each point: ``a`` its mean distance to its own group, ``b`` to the nearest other."""
    own = np.arange(len(labels)), labels
    inside = distances[own]
    others = distances.copy()
    others[own] = np.inf
    outside = others.min(1)
    return (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(float).tiny)
