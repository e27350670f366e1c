"""Images at another size are those that Pillow makes with the filter of the import, however they are read."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image

from tembed.images.image_files import fitted
from tembed.lab.data import resized_pool
from tembed.lab.data.image_set import ImageSet


@pytest.fixture(params=["kept", "not kept"])
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageSet]:
    monkeypatch.setattr(resized_pool, "KEPT", 10 * 12 * 12 * 3 - (request.param == "not kept"))
    dice = np.random.default_rng(0)
    pool, parts = dice.integers(0, 256, (10, 40, 40, 3), np.uint8), dice.integers(0, 5, (10, 40, 40), np.uint8)
    return ImageSet(pool, torch.arange(6) % 2, ("a", "b"), torch.tensor([7, 2, 9, 4, 0, 2]), parts, tuple("klmn"))


def test_every_way_to_read_gives_the_pixels_of_the_import(images: ImageSet) -> None:
    small = images.resized(12)
    expected = np.stack([fitted(Image.fromarray(each), 12, "crop") for each in images.pixels()])
    assert small.size == (12, 12)
    assert np.array_equal(small.pixels([3, 1]), expected[[3, 1]])
    assert np.array_equal(small.pixels(), expected)
    assert np.array_equal(small.subset(torch.tensor([5, 0])).pixels(slice(1)), expected[5:6])
    small.pixels()[:] = 0  # a copy
    assert np.array_equal(small.pixels(), expected)


def test_parts_keep_their_numbers(images: ImageSet) -> None:
    whole, small = images.part_map, images.resized(20).part_map
    assert whole is not None
    assert small is not None
    assert torch.equal(small, whole[:, 1::2, 1::2])


def test_the_shorter_side_counts_and_an_equal_one_changes_nothing() -> None:
    oblong = ImageSet(np.zeros((2, 20, 30, 3), np.uint8), torch.arange(2), ("a", "b"), torch.arange(2))
    assert oblong.resized(10).pixels().shape == (2, 10, 15, 3)
    assert oblong.resized(20) is oblong
