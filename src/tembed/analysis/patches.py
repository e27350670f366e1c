"""The pictures behind the pixels of a feature map: the image region that each patch's window covers (§3.3)."""

import numpy as np
from numpy.typing import NDArray

from tembed.data.reading import UInt8

GREY = 128
"""What lies outside the image."""


def patch_span(at: int, window: int, stride: float) -> tuple[int, int]:
    """The first image row (or column) of the patch at map row ``at``, and the one behind its last.

    ``s (i - (k-1)//2)`` to ``s (i + k//2 + 1)``, rounded; both may lie outside the image.
    """
    return round(stride * (at - (window - 1) // 2)), round(stride * (at + window // 2 + 1))


def patch_picture(
    image: UInt8, place: tuple[int, int], map_size: tuple[int, int], window: tuple[int, int]
) -> NDArray[np.uint8]:
    """The region of ``image (H, W, 3)`` that the patch at ``place`` covers, grey where there is no image."""
    (top, bottom), (left, right) = (
        patch_span(at, k, side / cells)
        for at, k, side, cells in zip(place, window, image.shape[:2], map_size, strict=True)
    )
    picture = np.full((bottom - top, right - left, 3), GREY, np.uint8)
    rows = slice(max(0, top), min(image.shape[0], bottom))
    columns = slice(max(0, left), min(image.shape[1], right))
    picture[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left] = image[rows, columns]
    return picture
