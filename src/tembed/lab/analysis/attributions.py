"""Maps that explain a network on a batch of images: ours, their rivals, and null explanations.

Each function takes a network, normalised images ``(N, 3, H, W)`` and a class for each, and returns a map of the size of
the images, ``(N, H, W)``: the higher, the more a pixel speaks for the class. `ATTRIBUTIONS` lists all, with what each
explains: the network's answer, the vote of its patches, or, as a control, nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tembed.attachment.frozen import Frozen
from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.common.extras import needs
from tembed.lab.analysis.features import window_of
from tembed.lab.analysis.heat_map import enlarged
from tembed.models.network import Network
from tembed.trained.weights_file import AnyNetwork

Function = Callable[..., Floats]
"""Called with a network, images and classes."""
Need = Literal["scores", "mixing", "head", "gradient"]
"""What a map needs: patch scores; mixing weights; a linear head on the mean of a map; gradients of the pixels."""

STEPS = 10
"""Points on the path of integrated gradients from the mean image to the image."""
BLOCK_STEPS = 4
"""The same from the place of the block on, where the network is nearly linear."""
SQUARES = 5
"""Occluding squares along each side; each has a quarter of the side."""
SMOOTHED = 0.05
"""Standard deviation of the Gaussian that smooths `halfway_gradient`, as a share of the side."""
WIDTH = 0.25
"""Standard deviation of the centred Gaussian, as a share of the side."""


@dataclass(frozen=True)
class Attribution:
    """A way to explain a network. ``explains``: the answer of the network, the vote of its patches, or nothing."""

    name: str
    explains: Literal["answer", "vote", "nothing"]
    needs: frozenset[Need]
    function: Function

    def __call__(self, network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
        """The maps ``(N, H, W)``. Raises `TembedError` if the network lacks what they need."""
        if missing := self.needs - abilities(network):
            raise TembedError(
                f"{network.description.model or 'this network'} has no {self.name} map: it has no {min(missing)}"
            )
        return self.function(network, x, classes)


ATTRIBUTIONS: dict[str, Attribution] = {}


def attribution(name: str, explains: Literal["answer", "vote", "nothing"], *needs: Need) -> Callable[..., Function]:
    """Register a function under a name."""

    def add(function: Function) -> Function:
        ATTRIBUTIONS[name] = Attribution(name, explains, frozenset(needs), function)
        return function

    return add


def available(network: AnyNetwork) -> list[Attribution]:
    """The attributions that a network has, in the order of their registration."""
    return [one for one in ATTRIBUTIONS.values() if one.needs <= abilities(network)]


def best_attribution(network: AnyNetwork) -> Attribution:
    """The one that `tembed.explain` draws: the best that docs/judge.md has measured of those that the network has."""
    names = ("softmax x gradient", "halfway gradient", "softmax x cam", "cam", "softmax")
    return next(ATTRIBUTIONS[name] for name in names if ATTRIBUTIONS[name] in available(network))


def abilities(network: AnyNetwork) -> set[Need]:
    """What the maps of a network can be made of."""
    found: set[Need] = set() if isinstance(network, Frozen) else {"gradient"}
    if isinstance(network, Network | Frozen):
        found.add("head")
    block: Any = network.block
    if hasattr(block, "match"):
        found.add("scores")
    if hasattr(block, "maximizer"):
        found.add("mixing")
    return found


# --- the patches' vote


def _chosen(maps: Tensor, classes: Tensor) -> Floats:
    """The map of each image's class: ``(N, C, h, w)`` to ``(N, h, w)``."""
    return maps[torch.arange(len(maps)), classes].detach().float().cpu().numpy()


def _patches(network: AnyNetwork, x: Tensor, values: Floats) -> Floats:
    window = window_of(network.block, (values.shape[1], values.shape[2]))
    return enlarged(values, window, (x.shape[2], x.shape[3]))


def _scores(network: AnyNetwork, x: Tensor) -> Tensor:
    with torch.no_grad():
        found = network(x).scores
    assert found is not None
    return found


@attribution("softmax", "vote", "scores")
def patch_softmax(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The probability of the class in each patch."""
    return _patches(network, x, _chosen(_scores(network, x).softmax(1), classes))


@attribution("score", "vote", "scores")
def patch_scores(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The score of the class in each patch."""
    return _patches(network, x, _chosen(_scores(network, x), classes))


@attribution("log-odds", "vote", "scores")
def patch_log_odds(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The score of the class minus the log-sum-exp of the others: the logit of its probability."""
    scores = _scores(network, x)
    own = F.one_hot(classes, scores.shape[1]).bool()[:, :, None, None]
    others = scores.masked_fill(own, -torch.inf).logsumexp(1, keepdim=True)
    return _patches(network, x, _chosen(scores - others, classes))


@attribution("mixing", "vote", "scores", "mixing")
def mixing_weights(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The weight of the class vector in each patch."""
    with torch.no_grad():
        found = network.trace(x).mixing
    assert found is not None
    return _patches(network, x, _chosen(found, classes))


# --- the answer


def last_map(network: AnyNetwork, f: Tensor) -> Tensor:
    """The map whose mean the linear head reads, from the map behind the block's place."""
    return network.norm(network.stage4(f)) if isinstance(network, Network) else f


def _head(network: AnyNetwork, z: Tensor) -> Tensor:
    assert isinstance(network, Network | Frozen)
    logits: Tensor = network.head(z.mean((2, 3)))
    return logits


def class_activations(network: AnyNetwork, x: Tensor) -> Tensor:
    """The class activation maps of all classes, ``(N, C, h, w)``; the mean plus the head's bias is the logit."""
    with torch.no_grad():
        return _activations(network, network.trace(x).block_output)


def _activations(network: AnyNetwork, f: Tensor) -> Tensor:
    assert isinstance(network, Network | Frozen)
    return torch.einsum("kc,nchw->nkhw", network.head.weight, last_map(network, f))


def _whole(x: Tensor, values: Floats) -> Floats:
    """A map of the last stage at the size of the images."""
    return enlarged(values, (1, 1), (x.shape[2], x.shape[3]))


@attribution("cam", "answer", "head")
def cam(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The class activation map: the head, applied at each place."""
    return _whole(x, _chosen(class_activations(network, x), classes))


@attribution("softmax x cam", "answer", "scores", "head")
def softmax_cam(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The patches' probability times the positive part of the class activation map."""
    with torch.no_grad():
        trace = network.trace(x)
        activations = _activations(network, trace.block_output)
    assert trace.softmax is not None
    positive = np.maximum(_whole(x, _chosen(activations, classes)), 0)
    return _patches(network, x, _chosen(trace.softmax, classes)) * positive


@attribution("grad-cam", "answer", "head")
def grad_cam(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """Grad-CAM at the last stage: the output of stage 4 weighted by its mean gradients, the positive part."""
    with torch.no_grad():
        f = network.trace(x).block_output
        stage = network.stage4(f) if isinstance(network, Network) else f
    stage = stage.detach().requires_grad_()
    with torch.enable_grad():
        z = network.norm(stage) if isinstance(network, Network) else stage
        logits = _head(network, z)
    (gradient,) = torch.autograd.grad(_sum(logits, classes), stage)
    found = F.relu((gradient.mean((2, 3), keepdim=True) * stage.detach()).sum(1))
    return _whole(x, found.cpu().numpy())


def _sum(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).sum()


def _integrated(function: Callable[[Tensor], Tensor], x: Tensor, classes: Tensor, steps: int) -> Tensor:
    """Integrated gradients of the logits from zero to ``x``, summed over the channels: ``(N, h, w)``."""
    total = torch.zeros_like(x)
    for step in range(steps):
        at = (x * ((step + 0.5) / steps)).detach().requires_grad_()
        with torch.enable_grad():
            logits = function(at)
        total += torch.autograd.grad(_sum(logits, classes), at)[0]
    return (x * total / steps).sum(1)


@attribution("ig", "answer", "gradient")
def integrated_gradients(network: AnyNetwork, x: Tensor, classes: Tensor, steps: int = STEPS) -> Floats:
    """Integrated gradients from the mean image. Their sum is the logit minus that of the mean image."""
    return _integrated(lambda at: network(at).logits, x, classes, steps).cpu().numpy()


@attribution("halfway gradient", "answer", "gradient")
def halfway_gradient(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """Integrated gradients in one step, at half of the contrast, smoothed by a Gaussian, times the number of pixels."""
    found = _integrated(lambda at: network(at).logits, x, classes, steps=1).cpu().numpy()
    height, width = found.shape[1:]
    smooth: Floats = needs("scipy.ndimage").gaussian_filter(found, (0, SMOOTHED * height, SMOOTHED * width))
    return smooth * (height * width)


@attribution("softmax x gradient", "answer", "scores", "gradient")
def softmax_gradient(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The patches' probability times the positive part of the halfway gradient."""
    return patch_softmax(network, x, classes) * np.maximum(halfway_gradient(network, x, classes), 0)


@attribution("ig at block", "answer", "head")
def integrated_from_block(network: AnyNetwork, x: Tensor, classes: Tensor, steps: int = BLOCK_STEPS) -> Floats:
    """Integrated gradients from the place of the block on, from a map of zeros. It needs no block."""
    with torch.no_grad():
        f = network.trace(x).block_output
    found = _integrated(lambda at: _head(network, last_map(network, at)), f, classes, steps)
    return _whole(x, found.cpu().numpy())


@attribution("input x gradient", "answer", "gradient")
def input_x_gradient(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The gradient of the logit times the distance from the mean image, summed over the channels."""
    at = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(at).logits
    (gradient,) = torch.autograd.grad(_sum(logits, classes), at)
    return (gradient * x).sum(1).detach().cpu().numpy()


@attribution("occlusion", "answer")
def occlusion(network: AnyNetwork, x: Tensor, classes: Tensor, squares: int = SQUARES) -> Floats:
    """The drop of the logit when a square is grey, as the mean over the squares that cover a pixel."""
    height, width = x.shape[2:]
    total, count = np.zeros((len(x), height, width), np.float32), np.zeros((height, width), np.float32)
    tall, wide = max(1, height // 4), max(1, width // 4)
    with torch.no_grad():
        whole = network(x).logits
        for top in np.unique(np.linspace(0, height - tall, squares).round().astype(int)).tolist():
            for left in np.unique(np.linspace(0, width - wide, squares).round().astype(int)).tolist():
                place = (slice(top, top + tall), slice(left, left + wide))
                grey = x.clone()
                grey[:, :, place[0], place[1]] = 0
                drop = (whole - network(grey).logits).gather(1, classes[:, None])
                total[:, place[0], place[1]] += drop.cpu().numpy()[:, :, None]
                count[place] += 1
    return total / count


# --- null explanations, which see no network


@attribution("random", "nothing")
def random_map(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """Uniform noise, the same for every class."""
    return np.random.default_rng(0).random((len(x), x.shape[2], x.shape[3]), np.float32)


@attribution("centre", "nothing")
def centred_gaussian(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """A Gaussian in the centre of the image."""
    places = ((np.arange(side, dtype=np.float32) + 0.5) / side - 0.5 for side in x.shape[2:])
    rows, columns = (np.exp(-(place**2) / (2 * WIDTH**2)) for place in places)
    return np.broadcast_to(rows[:, None] * columns, (len(x), len(rows), len(columns)))


@attribution("edges", "nothing")
def edges(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The strength of the edges of the grey image (Sobel)."""
    sobel = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]], device=x.device)
    grey = F.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    down, across = F.conv2d(grey, sobel[None, None])[:, 0], F.conv2d(grey, sobel.T[None, None])[:, 0]
    return torch.hypot(down, across).cpu().numpy()


@attribution("area", "nothing")
def constant(network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """One everywhere: the sum over a part is its area."""
    return np.ones((len(x), x.shape[2], x.shape[3]), np.float32)


NULLS = tuple(name for name, one in ATTRIBUTIONS.items() if one.explains == "nothing")
