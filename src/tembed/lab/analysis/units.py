"""What BN-ReLU does to the activations of the kernels in each unit, at some pixels of every image (§3.2).

A unit is a 3x3 convolution, whose kernels compute activations ``a``, and the BN-ReLU behind it, ``x = BN(a)`` and
``p = relu(x)``. The block's scores and its BN-ReLU are a unit as well.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tembed.block import FeatureEmbedding
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.batches import evaluation_batches
from tembed.lab.data.image_set import ImageSet
from tembed.maximizers.bn_relu import BNReLU, implied_margin
from tembed.maximizers.calibrate import visited_units
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork

BATCH = 50
SIDE = 4
"""Pixels are taken from an even grid of this side over the map, or from all of a smaller map."""
TOLERANCE = 0.1
"""``1 + x`` is accurate enough for ``e^x`` if it is off by at most this share of it."""
LIMIT = 0.5318116
"""The largest such x: ``(1 + x) e^-x = 1 - TOLERANCE``."""
BINS, HIGHEST = 1000, 10.0
"""Bins of the histogram of ``x`` between 0 and the highest value; larger ones count as that."""
BLOCK = "block"
"""The name of the block's unit."""
NO_UNITS = "in this network, no BN-ReLU follows a 3x3 convolution"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Numbers at each pixel, ``(N, S)``: images and pixels of an image.

    ``same``: 1 if the arg-max of ``p`` is that of ``a``; 0 otherwise, and where no kernel is active. ``matched``: 1 if
    a kernel is active, ``p_k > 0``. ``chance``: 1 / active kernels, how often a random active kernel would be the
    arg-max of ``p``. ``pairs``: pairs of active kernels. ``ordered``: those that ``a`` and ``p`` put into the same
    order. ``margin_same``, ``margin_ordered``: the same with ``a - mu`` instead of ``a``, where ``mu_k`` is the margin
    that BN implies. ``active``: active kernels. ``accurate``: those with ``e^x`` close to ``1 + x``. ``eta``: sum of
    ``p``. ``effective``: exponential of the entropy of ``p / eta``, an effective number of kernels. The last three are
    the same with ``relu(a)`` instead of ``p``.
    """

    same: Array
    matched: Array
    chance: Array
    pairs: Array
    ordered: Array
    margin_same: Array
    margin_ordered: Array
    active: Array
    accurate: Array
    eta: Array
    effective: Array
    raw_active: Array
    raw_accurate: Array
    raw_eta: Array


@dataclass(frozen=True)
class Unit:
    """A unit of a network: its name, its number of kernels and its points.

    ``histogram``: how many active kernels, at all pixels, have an ``x`` in each of the `BINS`.
    """

    name: str
    kernels: int
    points: Points
    histogram: Array


def measure_units(network: AnyNetwork, images: ImageSet, progress: Progress = SILENT) -> list[Unit]:
    """The units of a trained network on these images, in the order of the forward pass; empty if it has none."""
    mean, std = network.description.normalisation
    batches = evaluation_batches(images, BATCH, mean=mean, std=std)
    found: dict[nn.BatchNorm2d, list[dict[str, Array]]] = {}

    def visit(bn: nn.BatchNorm2d, a: Tensor, output: Any = None) -> None:
        found.setdefault(bn, []).append(measure_points(bn, a))

    done, device = 0, next(network.parameters()).device
    network.eval()
    with reproducible(device), torch.no_grad():
        for read, labels in batches.epoch(0):
            pixels = read.to(device)
            with visited_units(network, pixels, visit), ExitStack() as stack:
                for hook in _block_hooks(network, visit):
                    stack.callback(hook.remove)
                network(pixels)
            done += len(labels)
            progress.update(f"units of {network.description.model}", done, len(images))
    names = _names(network, list(found))
    return [_joined(names[bn], bn.num_features, parts) for bn, parts in found.items()]


def _block_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    blocks = [module.maximizer for module in model.modules() if isinstance(module, FeatureEmbedding)]
    return [maximizer.bn for maximizer in blocks if isinstance(maximizer, BNReLU)]


def _block_hooks(model: nn.Module, visit: Callable[..., None]) -> list[Any]:
    return [
        norm.register_forward_hook(lambda module, inputs, output: visit(module, inputs[0]))
        for norm in _block_norms(model)
    ]


def _names(model: nn.Module, norms: list[nn.BatchNorm2d]) -> dict[nn.BatchNorm2d, str]:
    """The name of the module that a normalisation belongs to, if no other one does; otherwise its own name."""
    whole = {module: name for name, module in model.named_modules()}
    whole |= {module.bn: name for module, name in whole.items() if isinstance(module, BNReLU)}
    parents = {bn: whole[bn].rpartition(".")[0] for bn in norms}
    alone = {parent for parent, count in Counter(parents.values()).items() if parent and count == 1}
    found = {bn: parent if parent in alone else whole[bn] for bn, parent in parents.items()}
    return found | dict.fromkeys(set(_block_norms(model)) & set(norms), BLOCK)


def _joined(name: str, kernels: int, parts: list[dict[str, Array]]) -> Unit:
    points = {field.name: np.concatenate([part[field.name] for part in parts]) for field in fields(Points)}
    return Unit(name, kernels, Points(**points), sum((part["histogram"] for part in parts), np.zeros(BINS)))


@torch.no_grad()
def measure_points(bn: nn.BatchNorm2d, a: Tensor) -> dict[str, Array]:
    """The fields of `Points` and the histogram for ``a (n, K, H, W)``, with the running statistics of ``bn``.

    They are computed on the CPU, because some GPUs have no float64.
    """
    assert bn.running_mean is not None
    assert bn.running_var is not None
    rows, columns = (_evenly(side) for side in a.shape[2:])
    a = a.cpu()[:, :, rows][:, :, :, columns].flatten(2).transpose(1, 2).double()  # (n, S, K)
    weight, bias, mean, variance = (each.cpu() for each in (bn.weight, bn.bias, bn.running_mean, bn.running_var))
    x = (a - mean) * (weight / (variance + bn.eps).sqrt()) + bias
    p, raw = x.relu(), a.relu()
    active = x > 0
    count = active.sum(-1)
    both = active[..., :, None] & active[..., None, :] & (x[..., :, None] > x[..., None, :])  # each pair once
    above = a - implied_margin(bn).cpu()
    eta = p.sum(-1)
    share = p / eta.clamp(min=1e-300)[..., None]
    found = {
        "same": (a.argmax(-1) == x.argmax(-1)) & (count > 0),
        "matched": count > 0,
        "chance": torch.where(count > 0, 1 / count.clamp(min=1), 0),
        "pairs": both.sum((-1, -2)),
        "ordered": (both & (a[..., :, None] > a[..., None, :])).sum((-1, -2)),
        "margin_same": (above.argmax(-1) == x.argmax(-1)) & (count > 0),
        "margin_ordered": (both & (above[..., :, None] > above[..., None, :])).sum((-1, -2)),
        "active": count,
        "accurate": (active & (x <= LIMIT)).sum(-1),
        "eta": eta,
        "effective": torch.where(count > 0, torch.special.entr(share).sum(-1).exp(), 0),
        "raw_active": (raw > 0).sum(-1),
        "raw_accurate": ((raw > 0) & (raw <= LIMIT)).sum(-1),
        "raw_eta": raw.sum(-1),
        "histogram": torch.histc(x[active].clamp(max=HIGHEST), BINS, 0, HIGHEST),
    }
    return {name: value.double().numpy() for name, value in found.items()}


def _evenly(side: int) -> Tensor:
    """Up to `SIDE` positions, evenly spaced over a side of a map, away from its border."""
    count = min(side, SIDE)
    return ((torch.arange(count) + 0.5) * side / count).long()
