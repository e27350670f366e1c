"""What the claims are compared with: other networks, and changed features of the same network."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from tembed.block import FeatureEmbedding, initialize, patch_mean
from tembed.common.arrays import Floats, Int64
from tembed.lab.analysis.features import Features
from tembed.lab.data.batches import evaluation_batches
from tembed.lab.data.image_set import ImageSet
from tembed.lab.training.environment import reproducible
from tembed.trained.weights_file import Trained, build

UNTRAINED = 5
"""Untrained networks: enough to see how much they differ from each other."""
RANDOM = 5
"""Draws of random class vectors, for the same reason."""
CALIBRATION = 500
"""Training images for the BN statistics of an untrained network."""
BATCH = 100
MOST = 1000
"""Up to this many other groupings or sets of pairs, all of them are ranked; of more, this many random ones."""
MOST_PAIRS = 200
"""The same for single pairs of classes."""


@dataclass(frozen=True)
class Networks:
    """The features of all networks on the same images. The first of each kind decides for these weights.

    ``run``: seeds of the analysed run. ``baseline``: of the network without a block. ``aux``: of deep supervision.
    ``one_by_one``: of the network with the shortcut's convolution alone. ``untrained``: the run's network, untrained.
    """

    run: tuple[Features, ...]
    baseline: tuple[Features, ...] = ()
    aux: tuple[Features, ...] = ()
    one_by_one: tuple[Features, ...] = ()
    untrained: tuple[Features, ...] = ()


@torch.no_grad()
def untrained(trained: Trained, images: ImageSet, seed: int) -> Trained:
    """The same network with random weights, and the BN statistics of up to `CALIBRATION` of these images.

    The block has random class vectors, also where training started from zero ones.
    """
    with reproducible():
        torch.manual_seed(seed)
        device = next(trained.model.parameters()).device
        model = build(trained.recipe, len(trained.classes), trained.input_size).to(device)
        for module in model.modules():
            if isinstance(module, FeatureEmbedding):
                initialize(module)
        rng = np.random.default_rng(seed)
        chosen = torch.from_numpy(np.sort(rng.permutation(len(images))[:CALIBRATION]))
        norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        batches = evaluation_batches(images.subset(chosen), BATCH, mean=trained.mean, std=trained.std)
        model.train()
        for norm in norms:
            norm.train()  # also in a frozen network
        for pixels, _ in batches.epoch(0):
            model(pixels.to(device))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return replace(trained, model=model.eval(), about={})


# --- other features


def spatial_mean(points: Floats, map_size: tuple[int, int], window: int) -> Floats:
    """The mean of the features in a window around each point, inside the map: ``(P, d)`` to the same shape."""
    maps = torch.from_numpy(points).view(-1, *map_size, points.shape[1]).permute(0, 3, 1, 2)
    return patch_mean(maps, (window, window)).permute(0, 2, 3, 1).reshape(points.shape).contiguous().numpy()


def with_embedding(features: Features, embedding: Floats) -> Floats:
    """The block's output with another ``f'``: added to the shortcut, or concatenated to the input."""
    assert features.embedding is not None
    if features.block_output.shape[1] == features.embedding.shape[1]:
        return features.block_output - features.embedding + embedding
    joined = features.block_output.copy()
    joined[:, -embedding.shape[1] :] += embedding - features.embedding
    return joined


def all_random_class_vectors(features: Features, seed: int) -> list[Features]:
    """The same features with `RANDOM` draws of Gaussian class vectors."""
    return [random_class_vectors(features, seed + draw) for draw in range(RANDOM)]


def random_class_vectors(features: Features, seed: int) -> Features:
    """The same features with Gaussian class vectors of the same lengths."""
    assert features.values is not None
    assert features.mixing is not None
    drawn = np.random.default_rng(seed).normal(size=features.values.shape)
    lengths = np.linalg.norm(features.values, axis=1, keepdims=True)
    values = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * lengths).astype(np.float32)
    embedding = features.mixing @ values
    return replace(features, values=values, embedding=embedding, block_output=with_embedding(features, embedding))


# --- other groupings and pairs


def other_groupings(group_of: Int64, seed: int) -> Int64:
    """Other ways to put the classes into groups of the same sizes: ``(G, C)``. Names of the groups do not matter."""
    sizes = np.bincount(group_of)
    ways = math.factorial(len(group_of))
    for size in sizes:
        ways //= math.factorial(int(size))
    for same in np.bincount(sizes):
        ways //= math.factorial(int(same))
    own = _canonical(group_of)
    if ways - 1 <= MOST:
        found = [grouping for grouping in _groupings(sizes.tolist(), len(group_of)) if grouping != own]
    else:
        rng, drawn = np.random.default_rng(seed), set[tuple[int, ...]]()
        while len(drawn) < MOST:
            grouping = _canonical(rng.permutation(group_of))
            if grouping != own:
                drawn.add(grouping)
        found = sorted(drawn)
    return np.array(found, np.int64).reshape(-1, len(group_of))


def _canonical(group_of: Int64) -> tuple[int, ...]:
    """The same grouping with its groups numbered in the order of their first class."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(int(group), len(numbers)) for group in group_of)


def _groupings(sizes: list[int], classes: int) -> list[tuple[int, ...]]:
    """All canonical groupings into groups of these sizes: the first free class chooses its group's size and members."""
    found: list[tuple[int, ...]] = []

    def fill(grouping: list[int], left: list[int], number: int) -> None:
        free = [k for k in range(classes) if grouping[k] < 0]
        if not free:
            found.append(tuple(grouping))
            return
        for size in sorted(set(left)):
            rest = left.copy()
            rest.remove(size)
            for members in itertools.combinations(free[1:], size - 1):
                chosen = grouping.copy()
                for k in (free[0], *members):
                    chosen[k] = number
                fill(chosen, rest, number + 1)

    fill([-1] * classes, list(sizes), 0)
    return found


def other_pairs(named: Sequence[tuple[int, int]], classes: int, seed: int) -> list[tuple[int, int]]:
    """All pairs of classes that are not named, or `MOST_PAIRS` random ones of many."""
    taken = {frozenset(pair) for pair in named}
    pairs = [pair for pair in itertools.combinations(range(classes), 2) if frozenset(pair) not in taken]
    if len(pairs) > MOST_PAIRS:
        chosen = np.random.default_rng(seed).permutation(len(pairs))[:MOST_PAIRS]
        pairs = [pairs[i] for i in sorted(chosen)]
    return pairs


def pair_sets(count: int, size: int, seed: int) -> Int64:
    """Sets of ``size`` out of ``count`` pairs, all or `MOST` random ones: ``(G, size)``."""
    if math.comb(count, size) <= MOST:
        return np.array(list(itertools.combinations(range(count), size)), np.int64).reshape(-1, size)
    rng = np.random.default_rng(seed)
    return np.stack([np.sort(rng.permutation(count)[:size]) for _ in range(MOST)])
