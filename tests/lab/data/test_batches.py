"""Batches equal those of a slow loop over single images, and any of them can be drawn again."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tembed.common.errors import TembedError
from tembed.lab.data.batches import Batches, draw_epoch, padding
from tembed.lab.data.image_set import ImageSet

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def image_set(count: int, height: int = 32, width: int = 32) -> ImageSet:
    dice = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, height, width), generator=dice).to(torch.uint8)
    return ImageSet(
        images=images.contiguous(memory_format=torch.channels_last),
        labels=torch.randint(7, (count,), generator=dice),
        classes=tuple("abcdefg"),
        indices=torch.arange(count) + 100,
    )


def batches(count: int, batch_size: int, height: int = 32, width: int = 32, **options) -> Batches:
    return Batches(image_set(count, height, width), batch_size, mean=MEAN, std=STD, **options)


def one_by_one(source: Batches, epoch: int, step: int) -> torch.Tensor:
    """The same batch as the paper describes it: normalise, zero-pad, crop and flip, one image at a time."""
    height, width = source.images.size
    draws = draw_epoch(len(source.images), height, width, source.seed, epoch, source.flips)
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    pictures = []
    for position in range(step * source.batch_size, min((step + 1) * source.batch_size, len(source.images))):
        picture = (source.images.images[draws.order[position]].float() / 255 - mean) / std
        if draws.flip[position]:
            picture = picture.flip(2)
        down, across = padding(height), padding(width)
        picture = F.pad(picture, (across, across, down, down))
        top, left = draws.top[position], draws.left[position]
        pictures.append(picture[:, top : top + height, left : left + width])
    return torch.stack(pictures)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (84, 84), (8, 8), (13, 21), (33, 30)])
@pytest.mark.parametrize("flips", ["random", "alternating"])
def test_a_batch_equals_that_of_a_slow_loop(height, width, flips):
    source = batches(23, 10, height, width, flips=flips)
    for epoch in range(3):
        for step in range(len(source)):
            pixels, labels = source.batch(epoch, step)
            expected = one_by_one(source, epoch, step)
            padded = expected == 0  # the padding, which ours rounds to a byte
            assert torch.allclose(pixels[~padded], expected[~padded], atol=2e-6)
            assert pixels[padded].abs().max() <= 0.5 / 255 / min(STD) + 1e-6
            assert torch.equal(labels, source.images.labels[source.indices(epoch, step)])


def test_batches_are_float_and_channels_last():
    for augment in (True, False):
        pixels, labels = batches(23, 10, augment=augment).batch(0, 1)
        assert pixels.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert pixels.is_contiguous(memory_format=torch.channels_last)


def test_evaluation_shows_each_image_once_and_unchanged():
    source = batches(23, 10, augment=False)
    pixels, labels = (torch.cat(column) for column in zip(*source.epoch(5), strict=True))
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    assert torch.allclose(pixels, (source.images.images.float() / 255 - mean) / std, atol=2e-6)
    assert torch.equal(labels, source.images.labels)


def test_evaluation_accepts_a_batch_larger_than_the_dataset():
    assert len(batches(5, 100, augment=False).batch(0, 0)[1]) == 5


def test_any_step_can_be_drawn_again_by_another_process():
    first = list(batches(50, 8, seed=3).epoch(7))
    draw_epoch.cache_clear()
    again = batches(50, 8, seed=3)
    for step in (6, 0, 3):
        pixels, labels = again.batch(7, step)
        assert torch.equal(pixels, first[step][0])
        assert torch.equal(labels, first[step][1])


def test_a_batch_belongs_to_the_caller():
    for source in (batches(50, 8), batches(50, 8, augment=False)):
        before = (*source.batch(0, 0), source.indices(0, 0))
        kept = [tensor.clone() for tensor in before]
        for tensor in before:
            tensor.fill_(9)
        for tensor, again in zip(kept, (*source.batch(0, 0), source.indices(0, 0)), strict=True):
            assert torch.equal(tensor, again)


def test_an_epoch_resumes_in_the_middle():
    source = batches(50, 8)
    whole, rest = list(source.epoch(2)), list(source.epoch(2, start=4))
    assert len(rest) == len(whole) - 4 == 3
    for (a, _), (b, _) in zip(whole[4:], rest, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize(("count", "batch_size"), [(48, 8), (50, 8), (53, 53), (7, 3)])
def test_an_epoch_shows_each_image_once(count, batch_size, augment):
    source = batches(count, batch_size, augment=augment)
    seen = torch.cat([source.indices(4, step) for step in range(len(source))])
    assert torch.equal(seen.sort().values, torch.arange(count))
    assert [source.count(step) for step in range(len(source))] == [len(y) for _, y in source.epoch(4)]
    assert sum(source.count(step) for step in range(len(source))) == count


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_shares_of_the_workers_make_up_the_batch_of_one_process(workers, augment):
    alone = batches(53, 16, augment=augment)
    team = [batches(53, 16, augment=augment, rank=rank, world_size=workers) for rank in range(workers)]
    for step in range(len(alone)):
        shares = [worker.batch(1, step) for worker in team]
        sizes = [len(labels) for _, labels in shares]
        assert max(sizes) - min(sizes) <= 1
        assert torch.equal(torch.cat([pixels for pixels, _ in shares]), alone.batch(1, step)[0])
        assert torch.equal(torch.cat([labels for _, labels in shares]), alone.batch(1, step)[1])


def test_epochs_and_seeds_differ_in_order_crops_and_flips():
    epochs = [draw_epoch(500, 32, 32, seed, epoch) for seed in range(3) for epoch in range(3)]
    for a, first in enumerate(epochs):
        for second in epochs[:a]:
            for column, other in zip(first, second, strict=True):
                agree = np.mean(column == other)
                chance = 1 / len(np.unique(column))
                assert abs(agree - chance) < 0.12


def test_crops_and_flips_are_uniform():
    draws = draw_epoch(81_000, 32, 32, 0, 0)
    cells = np.bincount(draws.top * 9 + draws.left, minlength=81)
    chi_square = ((cells - 1000) ** 2 / 1000).sum()
    assert len(cells) == 81
    assert chi_square < 80 + 4 * np.sqrt(2 * 80)
    assert abs(draws.flip.mean() - 0.5) < 4 * 0.5 / np.sqrt(81_000)


def test_alternating_flips_show_each_image_in_both_mirrors_in_turn():
    flipped = []
    for epoch in range(4):
        draws, plain = draw_epoch(1000, 32, 32, 7, epoch, "alternating"), draw_epoch(1000, 32, 32, 7, epoch)
        for name in ("order", "top", "left"):
            assert np.array_equal(getattr(draws, name), getattr(plain, name))
        by_image = np.empty(1000, dtype=bool)
        by_image[draws.order] = draws.flip
        flipped.append(by_image)
    assert np.array_equal(flipped[0], ~flipped[1])
    assert np.array_equal(flipped[0], flipped[2])
    assert np.array_equal(flipped[1], flipped[3])
    assert abs(flipped[0].mean() - 0.5) < 4 * 0.5 / np.sqrt(1000)


def test_the_padding_is_four_pixels_at_32_and_in_proportion():
    assert [padding(side) for side in (8, 32, 64, 84)] == [1, 4, 8, 10]


@pytest.mark.parametrize(
    ("count", "batch_size", "options", "words"),
    [
        (10, 11, {}, "`batch_size` is 11, but there are only 10 training images: give at most 10"),
        (10, 0, {}, "`batch_size` is 0"),
        (0, 4, {"augment": False}, "there are 0 images"),
        (10, 4, {"rank": 2, "world_size": 2}, "`rank` is 2; it must be from 0 to 1"),
        (10, 4, {"world_size": 3}, "leave a batch of 2, too small for 3 workers"),
    ],
)
def test_impossible_batches_are_refused_with_the_numbers(count, batch_size, options, words):
    with pytest.raises(TembedError, match=words):
        batches(count, batch_size, **options)


def test_a_constant_channel_and_a_step_outside_the_epoch_are_refused():
    with pytest.raises(TembedError, match="is constant"):
        Batches(image_set(10), 2, mean=MEAN, std=(0.1, 0.0, 0.1))
    for step in (-1, 3):
        with pytest.raises(TembedError, match=f"no step {step} in an epoch of 3"):
            batches(10, 4).batch(0, step)
