"""What the page shows, as plain values and small arrays.

Neighbours and mixtures need distances between embedding vectors ``f' = V^T p`` only, with mixing weights ``p`` and
class vectors ``V (C, v)``. They follow from ``p`` and the Gram matrix ``V V^T = B B^T``, so the page gets ``p`` and a
basis ``B (C, r)``, and ``|f'_i - f'_j| = |(p_i - p_j) B|``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.features import patch_span
from tembed.lab.claims.recognised_parts import leading_part, part_pixels

MOST = 100_000
"""Maximum number of patches on the page; above it, only some of the images are shown."""
SHARES = 1000
"""Class predictions are stored in steps of 1/1000."""
FINE = 65_535
"""Coordinates, mixing weights and entropies are stored as 16-bit integers."""
LAYOUTS = {
    "baseline": "Baseline",
    "block input": "Block input",
    "block output": "Block output",
    "predictions": "Predictions",
    "embedding vectors": "Embedding",
}
"""The layouts by the names of their maps, in the order of the page."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Content:
    """``about``: JSON values. ``arrays``: what there is for each patch or image. ``images``: ``(N, H, W, 3)``."""

    about: dict[str, Any]
    arrays: dict[str, Array]
    images: UInt8


def page_content(analysis: Analysis, most: int = MOST) -> Content:
    """Everything that the page shows of an analysis, thinned to about ``most`` patches."""
    features = analysis.features
    assert features.softmax is not None
    assert features.entropy is not None
    images = kept_images(features.labels, len(analysis.classes), max(1, most // features.per_image))
    points = (images[:, None] * features.per_image + np.arange(features.per_image)).ravel()
    softmax, word_of = features.softmax[points], analysis.words.word_of[points]
    layouts, positions = _layouts(analysis, points)
    entropy = features.entropy[points] / np.log(len(analysis.classes))
    arrays: dict[str, Array] = {
        **positions,
        "labels": features.labels[images].astype(np.uint16),
        "heads": features.head[images].astype(np.uint16),
        "entropy": np.rint(FINE * np.clip(entropy, 0, 1)).astype(np.uint16),
        "softmax": np.rint(SHARES * softmax).astype(np.uint16),
        "words": word_of.astype(np.uint16),
    }
    sample = analysis.sample
    if sample.part_map is not None:
        counts = part_pixels(sample.part_map[images], len(sample.parts), features.map_size, features.window)
        arrays["parts"] = leading_part(counts).astype(np.uint16)
    metric, view, half = _metric(analysis, points, arrays), analysis.view, analysis.effective_field.half
    height, width = analysis.images.shape[1:3]
    about = {
        "model": analysis.network.description.model,
        "data": analysis.data,
        "source": analysis.source,
        "baseline": analysis.baseline_source,
        "seed": analysis.seed,
        "classes": list(analysis.classes),
        "colours": [list(colour) for colour in analysis.colours],
        "parts": list(sample.parts) if sample.part_map is not None else [],
        "images": len(images),
        "allImages": len(features.labels),
        "perImage": features.per_image,
        "map": list(features.map_size),
        "size": [height, width],
        "fit": analysis.network.description.fit,
        "rows": _spans(features.map_size[0], features.window[0], height, view.margin),
        "columns": _spans(features.map_size[1], features.window[1], width, view.margin),
        "evidence": {
            "caption": view.caption,
            "note": analysis.effective_field.note,
            "half": half.margin - view.margin,
        },
        "accuracy": float((features.head == features.labels).mean()),
        "layouts": layouts,
        "words": _words(analysis, softmax, word_of),
        "metric": metric,
        "shares": SHARES,
        "fine": FINE,
    }
    if len(images) < len(features.labels):
        about["imageNumbers"] = images.tolist()
    if (files := sample.files) is not None:
        about["files"] = [files[image] for image in images]
    return Content(about, arrays, analysis.images[images])


def kept_images(labels: Int64, classes: int, most: int) -> Int64:
    """At most ``most`` images in their order, the first ones of each class, as equal in number as possible."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rank = np.empty(len(labels), np.int64)
    for label in range(classes):
        own = np.flatnonzero(labels == label)
        rank[own] = np.arange(len(own))
    return np.sort(np.argsort(rank, kind="stable")[:most])


def unit_square(coordinates: Floats) -> NDArray[np.uint16]:
    """Coordinates ``(n, 2)`` moved and scaled, equally in both directions, to fill the middle of 0 to `FINE`."""
    low, high = coordinates.min(0).astype(np.float64), coordinates.max(0).astype(np.float64)
    span = max(float((high - low).max()), np.finfo(np.float32).tiny)
    scaled = (coordinates - (low + high) / 2) / span + 0.5
    return np.rint(FINE * np.clip(scaled, 0, 1)).astype(np.uint16)


def _layouts(analysis: Analysis, points: Int64) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """The layouts, and their coordinates. Class vectors and zero follow the patches of the embedding."""
    maps, titles = analysis.geometry_maps | analysis.sprite_maps, analysis.map_titles
    count, layouts, positions = len(analysis.features.image_of), [], {}
    for name, label in LAYOUTS.items():
        if name not in maps:
            continue
        extra = np.arange(count, len(maps[name]))
        positions[f"layout {name}"] = unit_square(maps[name][np.concatenate([points, extra])])
        layouts.append({"name": name, "label": label, "title": titles.get(name, label), "vectors": len(extra) > 0})
    return layouts, positions


def _metric(analysis: Analysis, points: Int64, arrays: dict[str, Array]) -> dict[str, Any]:
    """The space of the neighbours; adds ``mixing`` and ``basis`` to the arrays of a network with class vectors."""
    features = analysis.features
    if features.mixing is None or features.values is None:
        return {"space": "predictions", "step": 1 / SHARES, "strength": 1.0}
    mixing = features.mixing[points]
    step = max(float(mixing.max()), 1e-6) / FINE
    arrays["mixing"] = np.rint(mixing / step).astype(np.uint16)
    arrays["basis"] = gram_basis(features.values)
    total = float(np.median(mixing.sum(1)))
    return {"space": "embedding", "step": step, "strength": total if total > 0 else 1.0}


def gram_basis(values: Floats) -> Floats:
    """``B (C, r)`` with ``B B^T = V V^T`` for class vectors ``V (C, v)``, from their singular value decomposition."""
    left, scale, _ = np.linalg.svd(values.astype(np.float64), full_matrices=False)
    return (left * scale).astype(np.float32)


def _words(analysis: Analysis, softmax: Floats, word_of: Int64) -> dict[str, Any]:
    """The visual words: their centres, the nearest patch of each on the page, and their sizes there."""
    centres = analysis.words.centres
    return {
        "centres": [[round(float(share), 4) for share in centre] for centre in centres],
        "points": [int(np.square(softmax - centre).sum(1).argmin()) for centre in centres],
        "sizes": np.bincount(word_of, minlength=len(centres)).tolist(),
        "chosen": analysis.words.chosen.tolist(),
    }


def _spans(cells: int, window: int, side: int, margin: int) -> list[list[int]]:
    return [list(patch_span(index, window, side / cells, margin)) for index in range(cells)]
