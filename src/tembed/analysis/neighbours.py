"""Exact neighbours and mean distances among the points, from chunks of rows of the distance matrix."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.arrays import Floats, Int64

VALUES = 1 << 24
"""Distances per chunk: 64 MB."""


@dataclass(frozen=True)
class Neighbourhood:
    """Neighbours and distances of each point among *other* images; points of one image are near duplicates.

    ``nearest``: ``(P, k)``, the nearest points. ``distances``: ``(P, G)``, the mean distance to each group.
    """

    nearest: Int64
    distances: NDArray[np.float64]


def squared_distances(x: Tensor, multiple: int = 1) -> Iterator[tuple[int, Tensor]]:
    """The first row of each chunk, and the squared distances ``(rows, P)``; ``rows`` is divisible by ``multiple``."""
    x = x - x.mean(0)
    lengths = x.square().sum(1)
    rows = max(1, VALUES // len(x) // multiple) * multiple
    for start in range(0, len(x), rows):
        chunk = x[start : start + rows]
        yield start, torch.addmm(lengths, chunk, x.T, alpha=-2).add_(lengths[start : start + rows, None]).clamp_(min=0)


def nearest(points: Floats, count: int) -> tuple[Int64, Floats]:
    """The ``count`` nearest other points of each point, and their distances: ``(P, count)``, nearest first."""
    x = torch.from_numpy(points)
    indices, distances = [], []
    for start, chunk in squared_distances(x):
        own = torch.arange(len(chunk))
        chunk[own, own + start] = torch.inf
        found = chunk.topk(count, dim=1, largest=False).indices
        # The expanded square loses precision at small distances; recomputing the few nearest is cheap.
        exact = torch.stack([(x[found[:, k]] - x[start : start + len(chunk)]).norm(dim=1) for k in range(count)], 1)
        exact, order = exact.sort(dim=1, stable=True)
        indices.append(found.gather(1, order))
        distances.append(exact)
    return torch.cat(indices).numpy(), torch.cat(distances).numpy()


def neighbourhood(points: Floats, per_image: int, group_of: Int64, groups: int, count: int) -> Neighbourhood:
    """The `Neighbourhood` of points that are ordered by image; ``group_of``: ``(P,)``, each point's group.

    All points of an image belong to the same group.
    """
    x = torch.from_numpy(points)
    in_group = torch.nn.functional.one_hot(torch.from_numpy(group_of), groups).to(x.dtype)
    sizes = in_group.sum(0).double()
    indices, means = [], []
    for start, chunk in squared_distances(x, per_image):
        chunk.sqrt_()
        total = (chunk @ in_group).double()
        counts = sizes.expand(len(chunk), -1).clone()
        for first in range(0, len(chunk), per_image):
            rows, own = slice(first, first + per_image), slice(start + first, start + first + per_image)
            group = int(group_of[start + first])
            total[rows, group] -= chunk[rows, own].sum(1).double()
            counts[rows, group] -= per_image
            chunk[rows, own] = torch.inf
        indices.append(chunk.topk(count, dim=1, largest=False).indices)
        means.append(total / counts)
    return Neighbourhood(torch.cat(indices).numpy(), torch.cat(means).numpy())


def purity(neighbours: Int64, labels: Int64) -> NDArray[np.float64]:
    """The share of each point's neighbours that have its label: ``(P,)``."""
    return (labels[neighbours] == labels[:, None]).mean(1)


def silhouette(distances: NDArray[np.float64], labels: Int64) -> NDArray[np.float64]:
    """``(b - a) / max(a, b)`` of each point: mean distance ``a`` to its own group, ``b`` to the nearest other one."""
    own = np.arange(len(labels)), labels
    inside = distances[own]
    others = distances.copy()
    others[own] = np.inf
    outside = others.min(1)
    return (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(float).tiny)
