"""Kernels of many shapes as a few batches of matrices: a GPU takes as long for a batch as for one of them."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST = 32
"""Matrices with fewer rows are padded to this many: products of small matrices cost a launch and nothing else."""


class Packing:
    """Arranges kernels ``(K, ...)`` in batches of wide matrices ``(B, m, n)``, padded by zeros, and back.

    A kernel is a matrix with one row per ``K``, transposed if it has more rows than columns. Its columns are in the
    order of memory, so that neither contiguous nor channels-last kernels have to be copied first. Matrices with about
    the same number of rows share a batch.
    """

    def __init__(self, kernels: Sequence[Tensor]):
        sides: dict[int, list[Tensor]] = defaultdict(list)
        position = 0
        for kernel in kernels:
            matrix = torch.arange(position, position + kernel.numel()).view(len(kernel), -1)
            wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
            sides[max(SMALLEST, 1 << (len(wide) - 1).bit_length())].append(wide)
            position += kernel.numel()
        padding, device = position, kernels[0].device
        batches = []  # for each value of a batch, its position in the kernels, or behind them for padding
        for side, matrices in sides.items():
            batch = torch.full((len(matrices), side, max(wide.shape[1] for wide in matrices)), padding)
            for number, wide in enumerate(matrices):
                batch[number, : wide.shape[0], : wide.shape[1]] = wide
            batches.append(batch)
        every = torch.cat([batch.flatten() for batch in batches])
        inside = torch.nonzero(every < padding).flatten()
        back = torch.empty(padding, dtype=torch.int64)
        back[every[inside]] = inside
        self.batches, self.back = [batch.to(device) for batch in batches], back.to(device)

    def pack(self, kernels: Sequence[Tensor]) -> list[Tensor]:
        """The batches of kernels that have the shapes and the memory layout of the first ones."""
        flat = [kernel.as_strided((kernel.numel(),), (1,)) for kernel in kernels]
        values = torch.cat([*flat, flat[0].new_zeros(1)])
        return [values[batch] for batch in self.batches]

    def unpack(self, batches: Sequence[Tensor], kernels: Sequence[Tensor]) -> list[Tensor]:
        """The matrices of batches in the shapes and the memory layout of these kernels."""
        values = torch.cat([batch.flatten() for batch in batches])[self.back]
        parts = values.split([kernel.numel() for kernel in kernels])
        return [part.as_strided(kernel.shape, kernel.stride()) for part, kernel in zip(parts, kernels, strict=True)]
