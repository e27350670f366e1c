"""From a map of patch values to a smooth map on the photograph."""

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats, UInt8
from tembed.common.extras import needs

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels of a photograph; it may reach beyond the photograph."""
COLOURS = "inferno"
FADED = 0.55
"""Share of white in the part of a photograph that the network does not see."""
COLD, HOT = 0.25, 0.75
"""Opacity of the lowest and the highest value over a photograph."""


def patch_centres(cells: int, window: int) -> NDArray[np.float64]:
    """The centre of each patch along one side of a map, in cells; a patch at the border ends at the border."""
    index = np.arange(cells)
    first = np.maximum(0, index - (window - 1) // 2)
    last = np.minimum(cells, index + window // 2 + 1)
    return (first + last) / 2


def smooth_map(values: Floats, window: tuple[int, int], box: Box, shape: tuple[int, int]) -> Floats:
    """The values ``(h, w)`` of a map, interpolated at every pixel of a photograph: ``shape``, NaN outside ``box``.

    Each value is at the centre of its patch. Between the centres the curves are monotone, so that nothing is higher
    than the highest patch; beyond the outermost centres they are constant.
    """
    left, top, right, bottom = box
    whole = np.full(shape, np.nan, np.float32)
    found: NDArray[np.floating] = values
    inside = []
    for axis, (start, end) in enumerate(((top, bottom), (left, right))):
        pixels = np.arange(shape[axis]) + 0.5
        seen = np.flatnonzero((pixels > start) & (pixels < end))
        cells = values.shape[axis]
        at = (pixels[seen] - start) / (end - start) * cells
        found = _interpolated(patch_centres(cells, window[axis]), found, at, axis)
        inside.append(seen)
    whole[np.ix_(*inside)] = found
    return whole


def enlarged(values: Floats, window: tuple[int, int], size: tuple[int, int]) -> Floats:
    """Maps ``(N, h, w)`` at every pixel of the images: ``(N, *size)``. Values are placed as in `smooth_map`."""
    found: NDArray[np.floating] = values
    for axis in (0, 1):
        cells, pixels = values.shape[axis + 1], size[axis]
        at = (np.arange(pixels) + 0.5) / pixels * cells
        found = _interpolated(patch_centres(cells, window[axis]), found, at, axis + 1)
    return found.astype(np.float32)


def _interpolated(
    centres: NDArray[np.float64], values: NDArray[np.floating], at: NDArray[np.float64], axis: int
) -> NDArray[np.floating]:
    knots, which = np.unique(centres, return_inverse=True)  # windows larger than the map have one centre
    rows = np.moveaxis(values, axis, 0)
    means = np.stack([rows[which == knot].mean(0) for knot in range(len(knots))])
    if len(knots) == 1:
        return np.repeat(np.moveaxis(means, 0, axis), len(at), axis)
    curve = needs("scipy.interpolate").PchipInterpolator(knots, means, axis=0)
    return np.moveaxis(curve(np.clip(at, knots[0], knots[-1])), 0, axis)


def overlay(photo: UInt8, heat: Floats, highest: float, power: float = 1.0) -> UInt8:
    """The photograph with colours from 0 to ``highest`` on the part that the network sees; the rest is faded.

    The colour of a value is that of its share of ``highest``, raised to ``power``.
    """
    seen = ~np.isnan(heat)
    share = (np.clip(np.nan_to_num(heat) / highest, 0, 1) ** power)[..., None]
    colours = needs("matplotlib").colormaps[COLOURS](share[..., 0])[..., :3] * 255
    opacity = COLD + (HOT - COLD) * share
    mixed = (1 - opacity) * photo + opacity * colours
    faded = (1 - FADED) * photo + FADED * 255
    return np.rint(np.where(seen[..., None], mixed, faded)).astype(np.uint8)
