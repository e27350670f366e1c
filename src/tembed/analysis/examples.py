"""Which patches the legend shows (appendix B)."""

import numpy as np

from tembed.analysis.features import Features
from tembed.data.reading import Int64

FEW = 0.2
"""Share of the patches that count as sure, or as unsure."""


def legend_points(features: Features, group_of: Int64 | None = None) -> list[tuple[str, int]]:
    """Two patches: a sure one, rightly classified, and an unsure one whose image the head gets wrong.

    The first has the lowest entropy of all in images that patch and head both get right, and lies inside its image. The
    second, among the least sure fifth of the patches in images that the head gets wrong, has the most mass on
    classes of its own super-class, or without super-classes on its true and its predicted class. Without any
    wrong image the unsure patch is of a right one, and says so.
    """
    p, unsure = features.softmax, features.entropy
    assert p is not None
    assert unsure is not None
    image_of = features.image_of
    truth, head = features.labels[image_of], features.head[image_of]
    within = _inside(features)
    sure = within & (truth == head) & (p.argmax(1) == truth)
    first = _lowest(unsure, sure if sure.any() else within)
    wrong = within & (truth != head)
    title = "higher entropy, wrongly classified"
    if not wrong.any():
        wrong, title = within, "higher entropy (no image is wrongly classified)"
    if group_of is None:
        related = np.zeros_like(p, bool)
        rows = np.arange(len(p))
        related[rows, truth] = related[rows, head] = True
    else:
        related = group_of[None, :] == group_of[truth][:, None]
        if (kin := wrong & (group_of[truth] == group_of[head])).any():
            wrong = kin
    least = wrong & (unsure >= np.quantile(unsure[wrong], 1 - FEW))
    second = _lowest(-(p * related).sum(1), least)
    title_sure = "low entropy, rightly classified" if sure.any() else "low entropy (no image is rightly classified)"
    return [(title_sure, first), (title, second)]


def _inside(features: Features) -> np.ndarray:
    """Points whose patch does not reach beyond its image; all, if none is such: ``(P,)``."""
    good = []
    for cells, window in zip(features.map_size, features.window, strict=True):
        at = np.arange(cells)
        good.append((at >= (window - 1) // 2) & (at + window // 2 < cells))
    inside = np.tile((good[0][:, None] & good[1][None, :]).reshape(-1), len(features.labels))
    return inside if inside.any() else np.ones_like(inside)


def _lowest(values: np.ndarray, among: np.ndarray) -> int:
    places = np.flatnonzero(among)
    return int(places[values[places].argmin()])
