"""Rate, image side and seeds are functions of the position in a run."""

import math

import pytest

from tembed.lab.training.recipe import Recipe
from tembed.lab.training.schedule import derived_seed, ends_early, image_side, learning_rate

PAPER = Recipe.paper("rn26", "cifar10").complete()
FAST = Recipe.fast("rn26", "cifar10").complete()


def test_the_papers_rate_is_constant() -> None:
    assert {learning_rate(PAPER, step, 100) for step in range(100)} == {1e-3}


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_one_cycle_rises_once_and_falls_to_nearly_zero(steps: int) -> None:
    rates = [learning_rate(FAST, step, steps) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(FAST.lr)
    assert min(rates) > 0
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    if steps == 1000:
        assert abs(top - 0.2 * steps) <= 1
        assert rates[-1] < 1e-4 * FAST.lr


def test_the_cosine_begins_where_the_warm_up_ends() -> None:
    """Of 1000 steps 200 rise: the cosine passes its half way at step 600, and three quarters of its way at 800."""
    rates = [learning_rate(FAST, step, 1000) / FAST.lr for step in (0, 99, 199, 200, 400, 600, 800)]
    half = math.sqrt(0.5)
    assert rates == pytest.approx([1 / 200, 0.5, 1, 1, (1 + half) / 2, 0.5, (1 - half) / 2])


def test_a_plateau_halves_the_rate_after_five_epochs_without_a_gain() -> None:
    """Written out: a gain is more than 0.001; after a cut, two epochs pass before epochs are counted again."""
    recipe = Recipe.paper("rn26", "cifar10", schedule="plateau")
    accuracies = [0.5, 0.6, *[0.6005] * 4, 0.7, *[0.7] * 14, 0.8, *[0.1] * 6]
    best, bad, rest, rate, rates = -1.0, 0, 0, 1e-3, []
    for accuracy in accuracies:
        rates.append(rate)
        if accuracy > best + 1e-3:
            best, bad = accuracy, 0
        else:
            bad += 1
        if rest:
            rest, bad = rest - 1, 0
        if bad == 5:
            rate, bad, rest = rate / 2, 0, 2
    found = [learning_rate(recipe, 10 * epoch, 1000, accuracies[:epoch]) for epoch in range(len(accuracies))]
    assert found == pytest.approx(rates)
    assert [found.count(rate) for rate in sorted(set(found), reverse=True)] == [12, 7, 8, 1]
    assert learning_rate(recipe, 0, 1000, [0.5] * 500) == pytest.approx(1e-6)


def test_patience_counts_the_epochs_after_the_first_best_one() -> None:
    patient = Recipe.paper("rn26", "cifar10", patience=3)
    assert [ends_early(patient, accuracies) for accuracies in ([], [0.5], [0.5, 0.5, 0.4], [0.5, 0.5, 0.4, 0.5])] == [
        False,
        False,
        False,
        True,
    ]
    assert not ends_early(patient, [0.5, 0.4, 0.4, 0.51, 0.1, 0.1])
    assert not ends_early(PAPER, [0.5] * 100)


@pytest.mark.parametrize("full", [16, 32, 84])
@pytest.mark.parametrize("epochs", [1, 2, 3, 8, 100])
def test_images_grow_to_their_full_side_before_the_end(epochs: int, full: int) -> None:
    recipe = Recipe.fast("rn26", "cifar10", epochs=epochs, start_scale=0.5)
    sides = [image_side(recipe, epoch, full) for epoch in range(epochs)]
    assert sides == sorted(sides)
    assert sides[-1] == full
    assert all(side % 4 == 0 or side == full for side in sides)
    if epochs > 1:
        assert sides[0] == max(8, full // 2 // 4 * 4)
    assert {image_side(PAPER, epoch, full) for epoch in range(200)} == {full}


def test_sides_in_between_are_rounded_down_to_four_pixels() -> None:
    """From 16 to 32 in steps of 3.2 and 16 / 6: never above the straight line, so that no epoch costs more."""
    sides = {
        epochs: [
            image_side(Recipe.fast("rn26", "cifar10", epochs=epochs, start_scale=0.5), epoch, 32)
            for epoch in range(epochs)
        ]
        for epochs in (8, 10)
    }
    assert sides == {8: [16, 16, 20, 24, 28, 32, 32, 32], 10: [16, 16, 20, 24, 24, 28, 32, 32, 32, 32]}


def test_each_step_has_its_own_seed() -> None:
    seeds = {derived_seed(seed, epoch, step) for seed in range(5) for epoch in range(12) for step in range(12)}
    assert len(seeds) == 5 * 12 * 12
    assert derived_seed(1, 11) != derived_seed(11, 1)
    assert all(0 <= seed < 2**63 for seed in seeds)
