"""All images in one picture, which the page uses as a texture; a patch is a window into it."""

import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tembed.common.arrays import UInt8

LARGEST = 4096
"""Maximum side of the atlas in pixels. Every WebGL2 device takes 2048, nearly all take this; larger images shrink."""
LOSSLESS = 2 << 20
"""Maximum number of pixels of a PNG atlas; a larger one is a JPEG."""


@dataclass(frozen=True)
class Atlas:
    """``columns``: images per row. ``tile``: height and width of each image in pixels."""

    columns: int
    tile: tuple[int, int]
    size: tuple[int, int]
    kind: str
    content: bytes


def make_atlas(images: UInt8, largest: int = LARGEST) -> Atlas:
    """Images ``(N, H, W, 3)`` row by row, about as wide as high."""
    count, height, width, _ = images.shape
    columns = max(1, min(count, round(math.sqrt(count * height / width))))
    rows = math.ceil(count / columns)
    shrink = min(1.0, largest / (columns * width), largest / (rows * height))
    tile = max(1, math.floor(height * shrink)), max(1, math.floor(width * shrink))
    sheet = np.full((rows * tile[0], columns * tile[1], 3), 128, np.uint8)
    for number, image in enumerate(images):
        if tile != (height, width):
            image = np.asarray(Image.fromarray(image).resize(tile[::-1], Image.Resampling.LANCZOS))
        row, column = divmod(number, columns)
        sheet[row * tile[0] : (row + 1) * tile[0], column * tile[1] : (column + 1) * tile[1]] = image
    kind = "png" if sheet.shape[0] * sheet.shape[1] <= LOSSLESS else "jpeg"
    content = io.BytesIO()
    if kind == "png":
        Image.fromarray(sheet).save(content, "PNG", optimize=True)
    else:
        Image.fromarray(sheet).save(content, "JPEG", quality=92, subsampling=0)
    return Atlas(columns, tile, (sheet.shape[0], sheet.shape[1]), kind, content.getvalue())
