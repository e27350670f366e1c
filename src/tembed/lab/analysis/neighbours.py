"""Exact neighbours and mean distances among the points, from chunks of rows of the distance matrix."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tembed.common.arrays import Floats, Int64

VALUES = 1 << 24
"""Distances per chunk: 64 MB."""


@dataclass(frozen=True)
class Neighbourhood:
    """What some points, the queries, have around them in *other* images; points of one image are near duplicates.

    ``queries``: ``(Q,)``, their points. ``nearest``: ``(Q, L)``, the nearest points, nearest first. ``distances``:
    ``(Q, N)``, the mean distance to the points of each image; 0 for the query's own.
    """

    queries: Int64
    nearest: Int64
    distances: Floats


def squared_distances(x: Tensor, queries: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
    """The first row of each chunk, and the squared distances ``(rows, P)`` of the queries, or of all points."""
    x = x - x.mean(0)
    lengths = x.square().sum(1)
    asked, their_lengths = (x, lengths) if queries is None else (x[queries], lengths[queries])
    rows = max(1, VALUES // len(x))
    for start in range(0, len(asked), rows):
        chunk, own = asked[start : start + rows], their_lengths[start : start + rows, None]
        yield start, torch.addmm(lengths, chunk, x.T, alpha=-2).add_(own).clamp_(min=0)


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


def neighbourhood(points: Floats, per_image: int, queries: Int64, count: int) -> Neighbourhood:
    """The `Neighbourhood` of some of the points, which are ordered by image, with up to ``count`` neighbours each."""
    x, images = torch.from_numpy(points), len(points) // per_image
    count = min(count, len(points) - per_image)
    asked = torch.from_numpy(queries)
    nearest, means = [], []
    for start, chunk in squared_distances(x, asked):
        chunk.sqrt_()
        by_image = chunk.view(len(chunk), images, per_image)
        own = torch.arange(len(chunk)), asked[start : start + len(chunk)] // per_image
        mean = by_image.mean(2)
        mean[own] = 0
        by_image[own] = torch.inf
        nearest.append(chunk.topk(count, dim=1, largest=False).indices)
        means.append(mean)
    return Neighbourhood(queries, torch.cat(nearest).numpy(), torch.cat(means).numpy())
