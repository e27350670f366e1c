"""Explanations judged without removing parts: where they point, what deleting pixels does, and what they depend on."""

import copy
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.common.arrays import Floats
from tembed.common.extras import needs
from tembed.lab.analysis.attributions import Attribution
from tembed.lab.analysis.features import window_of
from tembed.lab.analysis.judge_parts import Array, Bools, logits_of, spearman
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.leaving_out import CELLS, without_cells
from tembed.models.network import Network
from tembed.trained.weights_file import AnyNetwork

STEPS = 8
"""Steps in which pixels are deleted or inserted."""
BLUR = 3 / 32
"""Standard deviation of the blur that stands for a deleted pixel, as a share of the side."""
BELOW_THE_TOP = ("stem", "stage1", "stage2", "stage3", "block")
"""What keeps its weights when the top is randomised."""
TIMED = 3
"""Repetitions of a timing, of which the median counts."""


# --- localisation


def pointing(maps: Floats, objects: Bools) -> Array:
    """Whether the highest pixel lies on the object; of several highest ones, the share that does: ``(N,)``."""
    highest = maps == maps.max((1, 2), keepdims=True)
    return (highest & objects).sum((1, 2)) / highest.sum((1, 2))


def energy(maps: Floats, objects: Bools) -> Array:
    """The share of the positive values that lies on the object; that of the area if there are none: ``(N,)``."""
    positive = np.maximum(maps, 0).astype(float)
    total = positive.sum((1, 2))
    share = (positive * objects).sum((1, 2)) / np.where(total > 0, total, 1)
    return np.where(total > 0, share, objects.mean((1, 2)))


def with_fixed_window(network: AnyNetwork, x: Tensor) -> AnyNetwork:
    """A copy of the network whose patches keep, on larger images, the size that they have on ``x``."""
    network = copy.deepcopy(network)
    if isinstance(network.block, FeatureEmbedding | DeepSupervision):
        with torch.no_grad():
            rows, columns = network.features(x[:1]).shape[2:]
        network.block.match.window = window_of(network.block, (rows, columns))
    return network


def draw_grids(labels: Tensor, count: int, seed: int = 0) -> Tensor:
    """Images for ``count`` grids, four of different classes each: positions ``(count, 4)``."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        classes = rng.choice(labels.unique().numpy(), 4, replace=False)
        found.append([int(rng.choice(np.flatnonzero(labels.numpy() == label))) for label in classes])
    return torch.tensor(found)


def grid_shares(explain: Attribution, network: AnyNetwork, x: Tensor, labels: Tensor, grids: Tensor) -> Array:
    """The share of each class's positive values in its own quarter of a 2x2 grid of images: ``(4 * grids,)``.

    Chance is 0.25.
    """
    height, width = x.shape[2:]
    found = []
    for four in grids:
        rows = torch.cat([x[four[[0, 2]]], x[four[[1, 3]]]], 3)  # left and right
        whole = torch.cat([rows[:1], rows[1:]], 2).expand(4, -1, -1, -1).contiguous(memory_format=torch.channels_last)
        maps = explain(network, whole, labels[four])
        for k in range(4):
            quarter = np.zeros((2 * height, 2 * width), bool)
            top, left = k // 2 * height, k % 2 * width
            quarter[top : top + height, left : left + width] = True
            found.append(energy(maps[k : k + 1], quarter[None])[0])
    return np.array(found)


# --- deletion


def blurred(x: Tensor) -> Tensor:
    """The images without their details."""
    sides = [0.0, 0.0, BLUR * x.shape[2], BLUR * x.shape[3]]
    found = needs("scipy.ndimage").gaussian_filter(x.cpu().numpy(), sides)
    return torch.from_numpy(found).to(x).contiguous(memory_format=torch.channels_last)


def deletion_and_insertion(maps: Floats, network: AnyNetwork, x: Tensor, labels: Tensor) -> tuple[Array, Array]:
    """Mean probability of the class while the highest pixels are blurred first, and while they appear first: ``(N,)``.

    The lower the first and the higher the second, the better. Ties are broken at random.
    """
    flat, noise = maps.reshape(len(maps), -1), np.random.default_rng(0).random(maps[0].size)
    order = np.stack([np.lexsort((noise, -row)) for row in flat])
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(flat.shape[1])[None], 1)
    soft, curves = blurred(x), []
    places = torch.from_numpy(rank.reshape(len(maps), 1, *maps.shape[1:])).to(x.device)
    for first, second in ((soft, x), (x, soft)):
        values = []
        for step in range(STEPS + 1):
            shown = torch.where(places < flat.shape[1] * step / STEPS, first, second)
            logits = torch.from_numpy(logits_of(network, shown.contiguous(memory_format=torch.channels_last)))
            values.append(logits.softmax(1).gather(1, labels.cpu()[:, None])[:, 0].double().numpy())
        curves.append((np.sum(values, 0) - (values[0] + values[-1]) / 2) / STEPS)  # the trapezium rule
    return curves[0], curves[1]


def cell_drops(network: AnyNetwork, x: Tensor, labels: Tensor) -> Array:
    """How much the logit of the class falls when each of 4x4 cells is deleted: ``(N, 16)``."""
    rows = np.arange(len(x))
    whole, drops = logits_of(network, x)[rows, labels.cpu()], []
    for cell in range(CELLS * CELLS):
        logits = logits_of(network, without_cells(x, np.full(len(x), cell)))
        drops.append(whole - logits[rows, labels.cpu()])
    return np.stack(drops, 1).astype(float)


def cell_sums(maps: Floats) -> Array:
    """The sum of each map over each of 4x4 cells: ``(N, 16)``."""
    rows = np.stack([part.sum(1) for part in np.array_split(maps.astype(float), _cuts(maps.shape[1]), 1)], 1)
    return np.stack([part.sum(2) for part in np.array_split(rows, _cuts(maps.shape[2]), 2)], 2).reshape(len(maps), -1)


def _cuts(side: int) -> list[int]:
    return [k * side // CELLS for k in range(1, CELLS)]


def cell_correctness(maps: Floats, drops: Array) -> Array:
    """IDSDS: Spearman's correlation between a map summed over cells and the drops of the logit: ``(N,)``."""
    return np.array([spearman(sums, drop) for sums, drop in zip(cell_sums(maps), drops, strict=True)])


# --- what a map depends on


def randomised(network: AnyNetwork, images: ImageSet, seed: int = 0) -> dict[str, AnyNetwork]:
    """The network with random weights: all of them, and, if it is one of ours, those of the last stage and the head."""
    found = {"sanity all": untrained(network, images, seed)}
    if isinstance(network, Network):
        kept = [name for name in BELOW_THE_TOP if getattr(network, name) is not None]
        found["sanity top"] = untrained(network, images, seed, keep=kept)
    return found


def similarity(maps: Floats, others: Floats) -> Array:
    """Spearman's correlation between two maps of each image; 0 if one of them is constant: ``(N,)``."""
    return np.array([np.nan_to_num(spearman(a.ravel(), b.ravel())) for a, b in zip(maps, others, strict=True)])


def locality(explain: Attribution, network: AnyNetwork, x: Tensor, labels: Tensor, others: Sequence[int]) -> float:
    """The share of the variance of a map's value that comes from pixels nearer than a quarter of the side.

    At four places the pixels farther away are exchanged for those of each of the ``others``: what then varies comes
    from afar.
    """
    height, width = x.shape[2:]
    far = total = 0.0
    for row in (height // 4, 3 * height // 4):
        for column in (width // 4, 3 * width // 4):
            near = torch.zeros(height, width, dtype=torch.bool, device=x.device)
            near[max(0, row - height // 4) : row + height // 4, max(0, column - width // 4) : column + width // 4] = (
                True
            )
            mixed = torch.where(near, x[:, None], x[list(others)][None]).flatten(0, 1)
            maps = explain(
                network,
                mixed.contiguous(memory_format=torch.channels_last),
                labels.repeat_interleave(len(others)),
            )
            values = maps[:, row, column].reshape(len(x), len(others)).astype(float)
            far += values.var(1, ddof=1).mean()
            total += values.var(ddof=1)
    return 1 - far / total if total > 0 else float("nan")


def milliseconds(explain: Attribution, network: AnyNetwork, x: Tensor, labels: Tensor) -> float:
    """Processor time of one explanation, the median of some."""
    times = []
    for _ in range(TIMED + 1):
        start = time.process_time()
        explain(network, x[:1], labels[:1])
        times.append(1000 * (time.process_time() - start))
    return float(np.median(times[1:]))
