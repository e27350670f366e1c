"""The picture of a patch shows the pixels that its features come from."""

import numpy as np
import pytest
import torch

from tembed.block import FeatureEmbedding, half_window, patch_mean
from tembed.lab.analysis.features import PADDING, entropy, patch_picture, patch_span, window_of


@pytest.mark.parametrize(("side", "cells"), [(32, 8), (84, 11), (84, 10), (16, 4)])
def test_a_bright_cell_is_seen_by_the_patches_that_cover_it(side: int, cells: int) -> None:
    """The block's mean of one bright map cell is bright exactly where the patch picture shows the cell centre."""
    window, stride = half_window(cells, cells), side / cells
    for row, column in ((0, 0), (cells // 2, 1), (cells - 1, cells - 1)):
        image = np.zeros((side, side, 3), np.uint8)
        middle = int(stride * (row + 0.5)), int(stride * (column + 0.5))
        image[middle] = 200
        f = torch.zeros(1, 1, cells, cells)
        f[0, 0, row, column] = 1
        bright = patch_mean(f, window)[0, 0] > 0
        for i in range(cells):
            for j in range(cells):
                picture = patch_picture(image, (i, j), (cells, cells), window)
                assert (picture == 200).any() == bool(bright[i, j]), (row, column, i, j)


def test_a_patch_shows_the_region_of_the_formula_and_is_white_outside_the_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    inner = patch_picture(image, (2, 3), (8, 8), (4, 4))
    np.testing.assert_array_equal(inner, image[4:20, 8:24])
    corner = patch_picture(image, (0, 7), (8, 8), (4, 4))
    assert corner.shape == (16, 16, 3)
    np.testing.assert_array_equal(corner[4:, :8], image[:12, 24:])
    assert (corner[:4] == PADDING).all()
    assert (corner[:, 8:] == PADDING).all()
    assert patch_span(0, 5, 84 / 11) == (round(-2 * 84 / 11), round(3 * 84 / 11))


def test_entropy_follows_its_definition() -> None:
    p = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]], np.float32)
    np.testing.assert_allclose(entropy(p), [0, np.log(4), np.log(2)], atol=1e-6)


def test_the_window_is_that_of_the_block() -> None:
    assert window_of(FeatureEmbedding(4, 3, window=3), (8, 8)) == (3, 3)
    assert window_of(FeatureEmbedding(4, 3), (11, 10)) == (5, 5)
    assert window_of(None, (8, 8)) == (4, 4)
