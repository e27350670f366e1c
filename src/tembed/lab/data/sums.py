"""The sums of each image, from which the mean and deviation of any subset follow without reading its pixels.

``sums.npy`` is written when a dataset is stored. It is no part of the dataset's own sha256; datasets that were stored
before there were sums have none.
"""

from pathlib import Path

import numpy as np

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError
from tembed.lab.data.npy import array_sha256

SUMS = "sums.npy"
CHUNK = 64
"""Images whose sums are computed together: few enough to stay in the cache."""


def image_sums(images: UInt8) -> Int64:
    """The sum of each channel of each image, then that of its square: int64 ``(n, 6)`` for ``(n, H, W, 3)``."""
    count, height, width, _ = images.shape
    sums = np.empty((count, 2, 3), np.int64)
    for start in range(0, count, CHUNK):
        rows = images[start : start + CHUNK].reshape(-1, height, 3 * width).astype(np.int32)
        for power, values in enumerate((rows, np.square(rows))):
            columns = values.sum(1, dtype=np.int32).reshape(-1, width, 3)
            sums[start : start + CHUNK, power] = columns.sum(1, dtype=np.int64)
    return sums.reshape(count, 6)


def read_sums(folder: Path, count: int, sha256: str) -> Int64:
    """The sums of ``count`` images, memory-mapped, from a file whose array has this sha256."""
    path = folder / SUMS
    try:
        sums: Int64 = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's reader raises many types of error on damaged files
        raise TembedError(f"{path} is missing or damaged ({error}): import the dataset again") from None
    if sums.shape != (count, 6) or sums.dtype != np.int64 or array_sha256(sums) != sha256:
        raise TembedError(f"{path} has changed since it was stored: import the dataset again")
    return sums
