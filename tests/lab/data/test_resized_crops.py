"""Random resized crops are parts of the images, of the sizes that they say, and a pure function of seed and epoch."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from tembed.images.pixels import normalised
from tembed.lab.data.batches import Batches
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.order import Order, draw_crops
from tembed.lab.data.resized_crops import LEAST_AREA, ResizedCrops, draw_boxes, resize_box

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def test_parts_lie_in_the_image_and_have_the_areas_and_ratios_that_they_say() -> None:
    boxes = draw_boxes(20_000, 256, 256, 0, 0)
    assert min(boxes.top.min(), boxes.left.min()) == 0
    assert (boxes.top + boxes.height).max() == (boxes.left + boxes.width).max() == 256
    assert (boxes.top + boxes.height)[boxes.height < 200].max() == 256
    assert (boxes.left + boxes.width)[boxes.width < 200].max() == 256
    area = boxes.height * boxes.width / 256**2
    ratio = boxes.width / boxes.height
    assert LEAST_AREA - 0.01 < area.min() < LEAST_AREA + 0.01
    assert ratio.min() == pytest.approx(3 / 4, abs=0.015)  # sides are whole pixels
    assert ratio.max() == pytest.approx(4 / 3, abs=0.015)
    small = area < 0.7  # these are never cut off at the edges
    assert stats.kstest(area[small], stats.uniform(LEAST_AREA, 0.7 - LEAST_AREA).cdf).pvalue > 1e-3
    room = 256 - boxes.height[small] + 1
    assert stats.kstest((boxes.top[small] + 0.5) / room, "uniform").pvalue > 1e-3
    assert np.array_equal(boxes.flip, draw_crops(20_000, 256, 256, 0, 0).flip)


def test_epochs_and_seeds_differ_and_a_draw_can_be_repeated() -> None:
    first = draw_boxes(100, 64, 48, 1, 2)
    draw_boxes.cache_clear()
    assert all(np.array_equal(*pair) for pair in zip(first, draw_boxes(100, 64, 48, 1, 2), strict=True))
    for other in (draw_boxes(100, 64, 48, 1, 3), draw_boxes(100, 64, 48, 2, 2)):
        assert (first.height != other.height).any()
    assert (first.height <= 64).all()
    assert (first.width <= 48).all()


@pytest.mark.parametrize("side", [8, 20])
def test_a_part_is_resized_with_the_mean_of_what_it_covers(side: int) -> None:
    """Against halves of the image: a part of twice the side has the mean of the weights of a triangle."""
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    found = resize_box(image, side, (8, 16, 2 * side, 2 * side), Image.Resampling.BILINEAR)
    part = image[8 : 8 + 2 * side, 16 : 16 + 2 * side].astype(float)
    weights = np.array([1, 3, 3, 1]) / 8  # a triangle of the width of two new pixels, at the centres of the old
    rows = sum(weight * np.roll(part, 1 - k, 0)[::2] for k, weight in enumerate(weights))
    both = sum(weight * np.roll(rows, 1 - k, 1)[:, ::2] for k, weight in enumerate(weights))
    np.testing.assert_allclose(found[1:-1, 1:-1], both[1:-1, 1:-1], atol=1.01)
    same = resize_box(image, side, (3, 5, side, side), Image.Resampling.LANCZOS)
    assert np.array_equal(same, image[3 : 3 + side, 5 : 5 + side])


def test_a_batch_equals_that_of_a_slow_loop_for_any_number_of_workers() -> None:
    pool = np.random.default_rng(1).integers(0, 256, (30, 24, 20, 3), np.uint8)
    images = ImageSet(pool, torch.arange(30) % 3, tuple("abc"), torch.arange(30))
    source = ResizedCrops(images, MEAN, STD, "alternating", 12)
    whole = Order(30, 8, seed=5)
    boxes = draw_boxes(30, 24, 20, 5, 1, "alternating")
    workers = [Batches(images, Order(30, 8, seed=5, rank=rank, world_size=2), source) for rank in range(2)]
    for step in range(len(whole)):
        expected = []
        for place, position in zip(range(30)[whole.share(step)], whole.positions(1, step), strict=True):
            top, left, height, width, flip = (int(column[place]) for column in boxes)
            picture = resize_box(pool[position], 12, (top, left, height, width), Image.Resampling.LANCZOS)
            expected.append(picture[:, ::-1] if flip else picture)
        found = torch.cat([worker.batch(1, step)[0] for worker in workers])
        assert torch.equal(found, normalised(np.stack(expected), MEAN, STD))
        assert found.shape[1:] == (3, 12, 12)
