"""What claims are compared with, by name: other networks, changed features of the same network, and constants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tembed.block import patch_mean
from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.lab.analysis.compared_runs import BASELINE, KINDS, MANY_UNTRAINED, RUN, UNTRAINED, add_kind
from tembed.lab.analysis.features import Features

Change = Callable[[Any, int], Any]
"""A network and a seed to a changed network, or to several by name."""


@dataclass(frozen=True)
class ControlSpec:
    """A control by its name. See `register_control`."""

    name: str
    kind: str = RUN
    change: Change | None = None
    draws: int = 1
    constant: float | None = None
    claims: tuple[str, ...] = ()

    def changed(self, network: Any, seed: int) -> Mapping[str, Any]:
        """What is measured instead of a network of the kind, by name."""
        found = network if self.change is None else self.change(network, seed)
        return found if isinstance(found, Mapping) else {self.name: found}


CONTROLS: dict[str, ControlSpec] = {}


def register_control(
    name: str,
    *,
    kind: str = RUN,
    change: Change | None = None,
    draws: int = 1,
    constant: float | None = None,
    claims: Sequence[str] = (),
) -> None:
    """Make a control known by its name, and add it to some claims.

    Args:
        name: what claims and reports call it.
        kind: the networks that it is measured on: "run", "baseline", "untrained", or a suffix such as "-aux" for the
            networks that are named like the baseline with it. ``tembed analyze --also`` accepts runs of them.
        change: called as ``change(features, seed)``; returns the `Features` to measure instead, or several by name.
        draws: how many seeds a random ``change`` is drawn with.
        constant: a number instead of a network.
        claims: names of claims that get this control in addition to those that they list.
    """
    if name in (*CONTROLS, RUN):
        raise TembedError(f"a control {name!r} is already registered: choose another name")
    if kind not in (*KINDS, UNTRAINED, MANY_UNTRAINED):
        add_kind(kind)
    CONTROLS[name] = ControlSpec(name, kind, change, draws, constant, tuple(claims))


def find_control(name: str) -> ControlSpec:
    if name not in CONTROLS:
        raise TembedError(f"no control {name!r} is registered; known: {', '.join(CONTROLS)}")
    return CONTROLS[name]


# --- changed features


def spatial_mean(points: Floats, map_size: tuple[int, int], window: int) -> Floats:
    """The mean of the features in a window around each point, inside the map: ``(P, d)`` to the same shape."""
    maps = torch.from_numpy(points).view(-1, *map_size, points.shape[1]).permute(0, 3, 1, 2)
    return patch_mean(maps, (window, window)).permute(0, 2, 3, 1).reshape(points.shape).contiguous().numpy()


def with_embedding(features: Features, embedding: Floats) -> Floats:
    """The block's output with another ``f'``: added to the shortcut, or concatenated to the input."""
    old = features.required("embedding")
    if features.block_output.shape[1] == old.shape[1]:
        return features.block_output - old + embedding
    joined = features.block_output.copy()
    joined[:, -embedding.shape[1] :] += embedding - old
    return joined


def random_class_vectors(features: Features, seed: int) -> Features:
    """The same features with Gaussian class vectors of the same lengths."""
    known = features.required("values")
    drawn = np.random.default_rng(seed).normal(size=known.shape)
    lengths = np.linalg.norm(known, axis=1, keepdims=True)
    values = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * lengths).astype(np.float32)
    embedding = features.required("mixing") @ values
    return replace(features, values=values, embedding=embedding, block_output=with_embedding(features, embedding))


def projected_mean(features: Features, seed: int) -> Features:
    """The same features with another ``f'``: the mean over the block's window, seen through a random matrix of rank C.

    It has the mean and the total variance of ``f'``, and comes from the same patches, but knows no classes.
    """
    embedding, rng = features.required("embedding"), np.random.default_rng(seed)
    means = spatial_mean(features.block_input, features.map_size, max(features.window))
    rank = len(features.required("values"))
    matrix = rng.normal(size=(means.shape[1], rank)) @ rng.normal(size=(rank, embedding.shape[1]))
    drawn = (means - means.mean(0)) @ matrix.astype(np.float32)
    scale = np.sqrt(embedding.var(0).sum() / drawn.var(0).sum())
    return replace(features, block_output=with_embedding(features, scale * drawn + embedding.mean(0)))


def _input(features: Features, seed: int) -> Features:
    return replace(features, block_output=features.block_input)


def _without_embedding(features: Features, seed: int) -> Features:
    return replace(features, block_output=with_embedding(features, np.zeros_like(features.required("embedding"))))


def _means(features: Features, points: Floats, name: str) -> dict[str, Features]:
    """The means of a space over 2x2 and over the block's window."""
    return {
        f"{window}x{window} mean of the {name}": replace(
            features, block_output=spatial_mean(points, features.map_size, window)
        )
        for window in sorted({2, max(features.window)} - {1})
    }


INPUT, INPUT_MEANS, BASELINE_MEANS = "block input", "means of the block input", "means of the baseline"
NO_EMBEDDING, RANDOM, BLANK = "output without f'", "random class vectors", "untrained network"
MANY_BLANK, PROJECTED = "many untrained networks", "random projection of the window's mean"

register_control(BASELINE, kind=BASELINE)
register_control("-aux", kind="-aux")
register_control("-1x1", kind="-1x1")
register_control(BLANK, kind=UNTRAINED)
register_control(MANY_BLANK, kind=MANY_UNTRAINED)
register_control(INPUT, change=_input)
register_control(INPUT_MEANS, change=lambda features, seed: _means(features, features.block_input, INPUT))
register_control(NO_EMBEDDING, change=_without_embedding)
register_control(RANDOM, change=random_class_vectors, draws=5)  # enough to see how much they differ from each other
register_control(PROJECTED, change=projected_mean, draws=5)
register_control(
    BASELINE_MEANS, kind=BASELINE, change=lambda features, seed: _means(features, features.block_output, BASELINE)
)
