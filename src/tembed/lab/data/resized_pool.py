"""A pool of images at another size. Each image is resized when it is first read."""

import numpy as np
from PIL import Image

from tembed.common.arrays import Int64, UInt8
from tembed.lab.data.npy import take_rows

KEPT = 1 << 31
"""Bytes of a resized pool that may stay in memory. The images of a larger one are resized each time they are read."""


class ResizedPool:
    """Images ``(M, H, W, 3)`` or maps ``(M, H, W)`` of bytes whose shorter side is ``side``; indexed by positions.

    ``resample``: the filter. Pictures are resized with Lanczos everywhere, as by the import and by `tembed.predict`.
    """

    def __init__(self, pool: UInt8, side: int, resample: Image.Resampling = Image.Resampling.LANCZOS):
        self.pool, self.resample = pool, resample
        height, width = pool.shape[1:3]
        scale = side / min(height, width)
        self.shape = (len(pool), round(height * scale), round(width * scale), *pool.shape[3:])
        self.nbytes = int(np.prod(self.shape))
        self.kept = np.empty(self.shape, np.uint8) if self.nbytes <= KEPT else None
        self.is_kept = np.zeros(len(pool), bool)

    def __getitem__(self, which: Int64) -> UInt8:
        if self.kept is None:
            return self._resized(which)
        if len(missing := np.unique(which[~self.is_kept[which]])):
            self.kept[missing] = self._resized(missing)
            self.is_kept[missing] = True
        return self.kept[which]

    def _resized(self, which: Int64) -> UInt8:
        found = np.empty((len(which), *self.shape[1:]), np.uint8)
        for row, image in zip(found, which.tolist(), strict=True):
            (pixels,) = take_rows(self.pool, np.array([image]))
            row[:] = Image.fromarray(pixels).resize(self.shape[2:0:-1], self.resample)
        return found
