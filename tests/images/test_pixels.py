"""Crops, flips and normalisation of a batch equal those of a slow loop over single pixels."""

import numpy as np
import pytest
import torch

from tembed.images.pixels import Crops, cropped, normalised, padding, resized

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
COLOUR = (128, 102, 76)  # the mean as bytes: 127.5, 102 and 76.5, halves to even


def random_images(count: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (count, height, width, 3), np.uint8)


def random_crops(count: int, height: int, width: int) -> Crops:
    rng = np.random.default_rng(width)
    top, left = rng.integers(0, 2 * padding(height) + 1, count), rng.integers(0, 2 * padding(width) + 1, count)
    top[:4], left[:4] = (0, 0, 2 * padding(height), 2 * padding(height)), (0, 2 * padding(width), 0, 2 * padding(width))
    return Crops(top, left, np.arange(count) % 3 == 0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (84, 84), (8, 8), (13, 21), (33, 30), (3, 3)])
def test_a_crop_shows_the_mirrored_image_and_the_mean_colour_around_it(height: int, width: int) -> None:
    images, crops = random_images(7, height, width), random_crops(7, height, width)
    before, found = images.copy(), cropped(images, crops, MEAN)
    assert found.shape == images.shape
    for n, image in enumerate(images):
        for y in range(height):
            for x in range(width):
                row, column = y + crops.top[n] - padding(height), x + crops.left[n] - padding(width)
                inside = 0 <= row < height and 0 <= column < width
                at = width - 1 - column if crops.flip[n] else column
                assert tuple(found[n, y, x]) == (tuple(image[row, at]) if inside else COLOUR)
    assert np.array_equal(images, before), "the images are not changed"


def test_the_middle_crop_is_the_image_itself() -> None:
    images = random_images(5, 12, 20)
    middle = Crops(np.full(5, padding(12)), np.full(5, padding(20)), np.zeros(5, bool))
    assert np.array_equal(cropped(images, middle, MEAN), images)
    assert np.array_equal(cropped(images, middle._replace(flip=np.ones(5, bool)), MEAN), images[:, :, ::-1])


def test_the_padding_is_four_pixels_at_32_and_in_proportion() -> None:
    assert [padding(side) for side in (8, 32, 64, 84)] == [1, 4, 8, 10]


def test_normalised_pixels_have_the_mean_and_the_deviation_removed() -> None:
    images = random_images(6, 10, 14)
    found = normalised(images, MEAN, STD)
    expected = (images / 255 - np.array(MEAN)) / np.array(STD)
    assert found.dtype == torch.float32
    assert found.shape == (6, 3, 10, 14)
    assert found.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(found.permute(0, 2, 3, 1), expected, atol=1e-6)


@pytest.mark.parametrize("value", [0, 1, 77, 255])
def test_normalisation_rounds_as_one_product_and_one_sum_in_single_precision(value: int) -> None:
    """So that another form of it, such as a table of 256 values on a GPU, can have the same bits."""
    found = normalised(np.full((1, 2, 2, 3), value, np.uint8), MEAN, STD)
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        expected = np.float32(value) * np.float32(1 / (255 * std)) + np.float32(-mean / std)
        assert (found[0, channel].numpy() == expected).all()


def test_an_empty_batch_stays_empty() -> None:
    nothing = np.zeros((0, 8, 8, 3), np.uint8)
    none = np.zeros(0, np.int64)
    assert cropped(nothing, Crops(none, none, none.astype(bool)), MEAN).shape == (0, 8, 8, 3)
    assert normalised(nothing, MEAN, STD).shape == (0, 3, 8, 8)


def test_resizing_to_a_smaller_side_averages_over_areas() -> None:
    images = torch.rand(2, 3, 8, 16).contiguous(memory_format=torch.channels_last)
    half = resized(images, 4)
    assert half.shape == (2, 3, 4, 8)
    assert half.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(half, images.view(2, 3, 4, 2, 8, 2).mean((3, 5)), atol=1e-6)
    assert resized(images, 8) is images


def test_bilinear_resizing_to_a_smaller_side_averages_out_what_it_cannot_show() -> None:
    lines = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(8).expand(1, 3, 16, 32)
    small = resized(lines, 4, "bilinear")
    assert small.shape == (1, 3, 4, 8)
    assert torch.allclose(small[..., 1:-1], torch.tensor(0.25), atol=0.01)


def test_bilinear_resizing_also_enlarges() -> None:
    ramp = torch.arange(8.0).expand(1, 3, 4, 8)
    large = resized(ramp, 8, "bilinear")
    assert large.shape == (1, 3, 8, 16)
    assert torch.allclose(large[0, 0, 0, 1:-1], torch.arange(1, 15) / 2 - 0.25)
    assert resized(ramp, 4, "bilinear") is ramp
