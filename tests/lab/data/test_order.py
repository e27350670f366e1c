"""The order of the images is a pure function of (seed, epoch, step, rank, world size), and shows each image once."""

import numpy as np
import pytest

from tembed.common.errors import TembedError
from tembed.lab.data.order import Order, draw_crops, draw_order


def test_any_step_can_be_drawn_again_by_another_process():
    order = Order(50, 8, seed=3)
    first = [order.positions(7, step) for step in range(len(order))]
    draw_order.cache_clear()
    again = Order(50, 8, seed=3)
    for step in (6, 0, 3):
        assert np.array_equal(again.positions(7, step), first[step])


def test_positions_belong_to_the_caller():
    for order in (Order(50, 8), Order(50, 8, shuffle=False)):
        kept = order.positions(0, 0).copy()
        order.positions(0, 0).fill(9)
        assert np.array_equal(order.positions(0, 0), kept)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("total", "batch_size"), [(48, 8), (50, 8), (53, 53), (7, 3)])
def test_an_epoch_shows_each_image_once(total, batch_size, shuffle):
    order = Order(total, batch_size, shuffle=shuffle)
    steps = [order.positions(4, step) for step in range(len(order))]
    seen = np.concatenate(steps)
    assert np.array_equal(np.sort(seen), np.arange(total))
    assert np.array_equal(seen, np.arange(total)) != shuffle
    assert [order.count(step) for step in range(len(order))] == [len(step) for step in steps]
    assert sum(order.count(step) for step in range(len(order))) == total


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_shares_of_the_workers_make_up_the_batch_of_one_process(workers, shuffle):
    alone = Order(53, 16, shuffle=shuffle)
    team = [Order(53, 16, shuffle=shuffle, rank=rank, world_size=workers) for rank in range(workers)]
    for step in range(len(alone)):
        shares = [worker.positions(1, step) for worker in team]
        sizes = [len(positions) for positions in shares]
        assert max(sizes) - min(sizes) <= 1
        assert np.array_equal(np.concatenate(shares), alone.positions(1, step))
        assert {worker.count(step) for worker in team} == {sum(sizes)}


def test_epochs_and_seeds_differ_in_order_crops_and_flips():
    pairs = [(seed, epoch) for seed in range(3) for epoch in range(3)]
    epochs = [(draw_order(500, *pair), *draw_crops(500, 32, 32, *pair)) for pair in pairs]
    for a, first in enumerate(epochs):
        for second in epochs[:a]:
            for column, other in zip(first, second, strict=True):
                agree = np.mean(column == other)
                chance = 1 / len(np.unique(column))
                assert abs(agree - chance) < 0.12


def test_crops_and_flips_are_uniform():
    crops = draw_crops(81_000, 32, 32, 0, 0)
    cells = np.bincount(crops.top * 9 + crops.left, minlength=81)
    chi_square = ((cells - 1000) ** 2 / 1000).sum()
    assert len(cells) == 81
    assert chi_square < 80 + 4 * np.sqrt(2 * 80)
    assert abs(crops.flip.mean() - 0.5) < 4 * 0.5 / np.sqrt(81_000)


def test_alternating_flips_show_each_image_in_both_mirrors_in_turn():
    flipped = []
    for epoch in range(4):
        crops, plain = draw_crops(1000, 32, 32, 7, epoch, "alternating"), draw_crops(1000, 32, 32, 7, epoch)
        for name in ("top", "left"):
            assert np.array_equal(getattr(crops, name), getattr(plain, name))
        by_image = np.empty(1000, dtype=bool)
        by_image[draw_order(1000, 7, epoch)] = crops.flip
        flipped.append(by_image)
    assert np.array_equal(flipped[0], ~flipped[1])
    assert np.array_equal(flipped[0], flipped[2])
    assert np.array_equal(flipped[1], flipped[3])
    assert abs(flipped[0].mean() - 0.5) < 4 * 0.5 / np.sqrt(1000)


@pytest.mark.parametrize(
    ("total", "batch_size", "options", "words"),
    [
        (10, 11, {}, "`batch_size` is 11, but there are only 10 training images: give at most 10"),
        (10, 0, {}, "`batch_size` is 0"),
        (0, 4, {"shuffle": False}, "there are 0 images"),
        (10, 4, {"rank": 2, "world_size": 2}, "`rank` is 2; it must be from 0 to 1"),
        (10, 4, {"world_size": 3}, "leave a batch of 2, too small for 3 workers"),
    ],
)
def test_impossible_orders_are_refused_with_the_numbers(total, batch_size, options, words):
    with pytest.raises(TembedError, match=words):
        Order(total, batch_size, **options)


def test_a_step_outside_the_epoch_is_refused():
    for step in (-1, 3):
        for ask in (Order(10, 4).share, Order(10, 4).count):
            with pytest.raises(TembedError, match=f"no step {step} in an epoch of 3"):
                ask(step)
        with pytest.raises(TembedError, match=f"no step {step} in an epoch of 3"):
            Order(10, 4).positions(0, step)
