"""Batches equal those of a slow loop over single images, and any of them can be drawn again."""

import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.datasets import planes

from tembed.common.errors import TembedError
from tembed.images.pixels import padding
from tembed.lab.data.batches import Batches, evaluation_batches, training_batches
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.order import draw_crops, draw_order

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def image_set(count: int, height: int = 32, width: int = 32) -> ImageSet:
    """All images of a pool but its first three, so that an image's position is not its index."""
    dice = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, height, width), generator=dice).to(torch.uint8)
    labels = torch.randint(7, (count,), generator=dice)
    pool = np.concatenate([np.zeros((3, height, width, 3), np.uint8), images.permute(0, 2, 3, 1).numpy()])
    return ImageSet(pool, labels, tuple("abcdefg"), torch.arange(count) + 3)


def batches(count: int, batch_size: int, height: int = 32, width: int = 32, augment: bool = True, **options) -> Batches:
    make = training_batches if augment else evaluation_batches
    return make(image_set(count, height, width), batch_size, mean=MEAN, std=STD, **options)


def one_by_one(source: Batches, epoch: int, step: int, flips: str) -> torch.Tensor:
    """The same batch as the paper describes it: normalise, zero-pad, crop and flip, one image at a time."""
    images, total, size = planes(source.images), len(source.images), source.order.batch_size
    height, width = source.images.size
    order = draw_order(total, source.order.seed, epoch)
    crops = draw_crops(total, height, width, source.order.seed, epoch, flips)
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    pictures = []
    for position in range(step * size, min((step + 1) * size, total)):
        picture = (images[order[position]].float() / 255 - mean) / std
        if crops.flip[position]:
            picture = picture.flip(2)
        down, across = padding(height), padding(width)
        picture = F.pad(picture, (across, across, down, down))
        top, left = crops.top[position], crops.left[position]
        pictures.append(picture[:, top : top + height, left : left + width])
    return torch.stack(pictures)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (84, 84), (8, 8), (13, 21), (33, 30)])
@pytest.mark.parametrize("flips", ["random", "alternating"])
def test_a_batch_equals_that_of_a_slow_loop(height, width, flips):
    source = batches(23, 10, height, width, flips=flips)
    for epoch in range(3):
        for step in range(len(source)):
            pixels, labels = source.batch(epoch, step)
            expected = one_by_one(source, epoch, step, flips)
            padded = expected == 0  # the padding, which ours rounds to a byte
            assert torch.allclose(pixels[~padded], expected[~padded], atol=2e-6)
            assert pixels[padded].abs().max() <= 0.5 / 255 / min(STD) + 1e-6
            assert torch.equal(labels, source.images.labels[source.order.positions(epoch, step)])


DIGESTS = {
    "32x32 random 0/1": "d6324607a65f28f7",
    "32x32 random 0/2": "5aaa70a4563352c5",
    "32x32 random 1/2": "90f83bb35512752f",
    "32x32 unchanged 0/1": "1af33195122440df",
    "32x32 unchanged 0/2": "c392d75e800de3f4",
    "32x32 unchanged 1/2": "58b0b85c538366f5",
    "32x32 alternating 0/1": "52e043e81e22bec7",
    "32x32 alternating 0/2": "26761d76de96fcc4",
    "32x32 alternating 1/2": "0eb2bf60a38d6693",
    "84x84 random 0/1": "d17be8372dfa77d0",
    "84x84 random 0/2": "31261aab1c580a32",
    "84x84 random 1/2": "3543c12e22fdb562",
    "84x84 unchanged 0/1": "947ca523b5b604b6",
    "84x84 unchanged 0/2": "e00df1bb02a610d9",
    "84x84 unchanged 1/2": "3009e52841b3633d",
    "84x84 alternating 0/1": "efac0d19087b7ed4",
    "84x84 alternating 0/2": "e4264381a1264baf",
    "84x84 alternating 1/2": "5cf0e1be882dec3a",
    "13x21 random 0/1": "284ef1a6ed296eab",
    "13x21 random 0/2": "ce81196c49ad0eef",
    "13x21 random 1/2": "67e89ed3d2820556",
    "13x21 unchanged 0/1": "89b5576ce4d29bf3",
    "13x21 unchanged 0/2": "29277114204dff07",
    "13x21 unchanged 1/2": "fe2e979413839d1f",
    "13x21 alternating 0/1": "4b9410e0d6c507de",
    "13x21 alternating 0/2": "d25c4961715e717a",
    "13x21 alternating 1/2": "029c39dced720183",
    "33x30 random 0/1": "1ec96f1e08f591f1",
    "33x30 random 0/2": "7a47c000c6f4f32f",
    "33x30 random 1/2": "3959d605f2d08da7",
    "33x30 unchanged 0/1": "47c919726b65df71",
    "33x30 unchanged 0/2": "46c687a3a4f16231",
    "33x30 unchanged 1/2": "1ec49e5b2f840e76",
    "33x30 alternating 0/1": "b95d53f362fbb206",
    "33x30 alternating 0/2": "0d9ba98e71e9208c",
    "33x30 alternating 1/2": "a21259ed0266bc16",
}
"""Two epochs of 23 images in batches of 10, with rank and world size, from before order and pixels were split."""


@pytest.mark.parametrize("case", DIGESTS)
def test_batches_have_had_the_same_bits_since_the_first_runs(case):
    """Runs can be repeated and resumed only if every bit of every batch stays."""
    size, how, share = case.split()
    height, width = map(int, size.split("x"))
    rank, world_size = map(int, share.split("/"))
    options = {"seed": 5, "flips": how} if how != "unchanged" else {"augment": False}
    source = batches(23, 10, height, width, rank=rank, world_size=world_size, **options)
    digest = hashlib.sha256()
    for epoch in (0, 3):
        for step, (pixels, labels) in enumerate(source.epoch(epoch)):
            digest.update(pixels.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
            digest.update(labels.numpy().tobytes())
            digest.update(source.order.positions(epoch, step).tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[case]


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
    assert torch.allclose(pixels, (planes(source.images).float() / 255 - mean) / std, atol=2e-6)
    assert torch.equal(labels, source.images.labels)


def test_evaluation_accepts_a_batch_larger_than_the_dataset():
    assert len(batches(5, 100, augment=False).batch(0, 0)[1]) == 5


def test_a_worker_without_a_share_gets_an_empty_batch():
    pixels, labels = batches(2, 10, augment=False, rank=0, world_size=3).batch(0, 0)
    assert pixels.shape == (0, 3, 32, 32)
    assert labels.shape == (0,)


def test_any_step_can_be_drawn_again_by_another_process():
    first = list(batches(50, 8, seed=3).epoch(7))
    draw_order.cache_clear()
    draw_crops.cache_clear()
    again = batches(50, 8, seed=3)
    for step in (6, 0, 3):
        pixels, labels = again.batch(7, step)
        assert torch.equal(pixels, first[step][0])
        assert torch.equal(labels, first[step][1])


def test_a_batch_belongs_to_the_caller():
    for source in (batches(50, 8), batches(50, 8, augment=False)):
        before = source.batch(0, 0)
        kept = [tensor.clone() for tensor in before]
        for tensor in before:
            tensor.fill_(9)
        for tensor, again in zip(kept, source.batch(0, 0), strict=True):
            assert torch.equal(tensor, again)


def test_an_epoch_resumes_in_the_middle():
    source = batches(50, 8)
    whole, rest = list(source.epoch(2)), list(source.epoch(2, start=4))
    assert len(rest) == len(whole) - 4 == 3
    for (a, _), (b, _) in zip(whole[4:], rest, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_shares_of_the_workers_make_up_the_batch_of_one_process(workers, augment):
    alone = batches(53, 16, augment=augment)
    team = [batches(53, 16, augment=augment, rank=rank, world_size=workers) for rank in range(workers)]
    for step in range(len(alone)):
        shares = [worker.batch(1, step) for worker in team]
        assert torch.equal(torch.cat([pixels for pixels, _ in shares]), alone.batch(1, step)[0])
        assert torch.equal(torch.cat([labels for _, labels in shares]), alone.batch(1, step)[1])


def test_a_constant_channel_is_refused():
    with pytest.raises(TembedError, match="is constant"):
        training_batches(image_set(10), 2, mean=MEAN, std=(0.1, 0.0, 0.1))
