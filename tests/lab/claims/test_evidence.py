"""Half-samples give the right spread, and controls the right verdicts."""

import numpy as np
import pytest
from scipy import stats

from tembed.lab.claims.claim import Measure
from tembed.lab.claims.evidence import Rival, control, is_defined, ranked
from tembed.lab.claims.half_samples import HalfSamples, measure
from tembed.lab.claims.separability import separability
from tembed.lab.claims.statistics import LEVEL

LABELS = np.repeat(np.arange(4), 8)


def width(found: Measure) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_a_half_sample_has_half_of_the_images_of_each_class() -> None:
    labels = np.repeat([0, 1, 2], [8, 5, 2])
    samples = HalfSamples.draw(labels, 3, seed=1, resamples=200)
    assert samples.rows[0].all()
    assert samples.rows.shape == (201, 15)
    sizes = [samples.rows[1:, labels == label].sum(1) for label in range(3)]
    assert set(sizes[0]) == {4}
    assert set(sizes[1]) == {2, 3}
    assert set(sizes[2]) == {1}
    assert (samples.rows[1:].any(0)).all()
    again = HalfSamples.draw(labels, 3, seed=1, resamples=200)
    np.testing.assert_array_equal(samples.rows, again.rows)


def test_the_spread_of_half_samples_is_the_standard_error_of_the_mean() -> None:
    by_image = np.random.default_rng(0).normal(size=len(LABELS))
    samples = HalfSamples.draw(LABELS, 4, resamples=2000)
    found = measure(samples.mean(np.repeat(by_image, 4)))
    assert found.value == pytest.approx(by_image.mean())
    error = np.sqrt(sum(by_image[label == LABELS].var(ddof=1) / 8 for label in range(4)) / 16)
    assert width(found) == pytest.approx(2 * 1.96 * error, rel=0.06)


def planted(rng: np.random.Generator, labels: np.ndarray, gain: float) -> tuple[np.ndarray, np.ndarray]:
    """Two spaces of 2x2 patches: the classes are further apart in the second. Patches of an image share a part."""
    centre = np.eye(4, 6)[labels] + 0.7 * rng.normal(size=(len(labels), 6))
    first = np.repeat(centre, 4, axis=0) + 0.7 * rng.normal(size=(4 * len(labels), 6))
    return first.astype(np.float32), (first + gain * np.repeat(np.eye(4, 6)[labels], 4, axis=0)).astype(np.float32)


def gain_in_purity(rng: np.random.Generator, samples: HalfSamples, gain: float) -> np.ndarray:
    spaces = planted(rng, samples.labels, gain)
    before, after = (separability(space, (2, 2), samples).purity(np.arange(4)) for space in spaces)
    return after - before


@pytest.mark.slow
def test_intervals_of_a_neighbour_measure_cover_the_spread_over_disjoint_samples() -> None:
    """Keeping the neighbour graph fixed, or drawing with replacement, would miss this."""
    labels = np.repeat(np.arange(4), 14)
    whole = HalfSamples.draw(labels, 4, 0, 0)
    truth = np.array([gain_in_purity(np.random.default_rng(seed), whole, 0.3)[0] for seed in range(200)])
    covered, widths = [], []
    for seed in range(40):
        samples = HalfSamples.draw(labels, 4, seed, 30)
        found = measure(gain_in_purity(np.random.default_rng(1000 + seed), samples, 0.3))
        assert found.low is not None
        assert found.high is not None
        covered.append(found.low <= truth.mean() <= found.high)
        widths.append(width(found))
    assert np.mean(covered) > 0.87
    assert np.mean(widths) == pytest.approx(2 * 1.96 * truth.std(), rel=0.25)


def test_equal_measures_are_rarely_told_apart() -> None:
    """The two spaces differ by noise only, so at most one test in twenty should find a difference."""
    labels, found = np.repeat(np.arange(4), 10), []
    for seed in range(60):
        rng, samples = np.random.default_rng(seed), HalfSamples.draw(labels, 4, seed, 30)
        first, second = (separability(planted(rng, labels, 0)[0], (2, 2), samples).purity(np.arange(4)) for _ in "ab")
        found.append(control("c", first, [second]).p)
    assert np.mean(np.array(found) < LEVEL) < 0.13
    assert 0.35 < np.mean(found) < 0.65


def test_a_control_is_compared_on_the_same_half_samples() -> None:
    """Both measures vary a lot with the images, but their difference does not."""
    samples = HalfSamples.draw(LABELS, 4)
    by_image = np.random.default_rng(0).normal(size=len(LABELS)) * 10
    own, other = samples.mean(by_image), samples.mean(by_image - 1)
    found = control("c", own, [other])
    assert found.difference.value == pytest.approx(1)
    assert found.beaten
    assert width(found.value) > 4 > width(found.difference)
    behind = control("c", other, [own])
    assert behind.difference.value == pytest.approx(-1)
    assert (behind.p, behind.against) == (pytest.approx(1), pytest.approx(0, abs=1e-6))


def test_other_groupings_are_shown_by_their_95_percent_quantile_and_the_rank() -> None:
    images = 0.5 * np.random.default_rng(0).normal(size=21)  # what the choice of images adds to every grouping
    others = images[:, None] + np.arange(99.0)
    own = [np.append(images, np.zeros(5)) + 96.5, np.array([50.5])]  # the others are ranked on fewer half-samples
    found = ranked("other groupings", own, [others, others[:1]]).control(own)
    assert found.name == "95% of other groupings (rank 3 of 100)"
    assert found.difference.value == pytest.approx(96.5 - np.quantile(np.arange(99.0), 0.95))
    assert found.beaten
    assert found.seeds is not None
    assert found.seeds.gap == pytest.approx(73.5 - np.quantile(np.arange(99.0), 0.95) + images[0] / 2 - images[0])


def test_undefined_draws_give_no_interval() -> None:
    draws = np.array([0.5, *[np.nan] * 60, *[0.4, 0.6] * 20])
    assert measure(draws) == Measure(0.5)
    found = control("c", draws, [np.zeros(101)])
    assert (found.p, found.against) == (1, 1)


@pytest.mark.parametrize("nowhere_is", [np.nan, np.inf])
def test_a_control_is_undefined_if_one_of_its_seeds_is(nowhere_is: float) -> None:
    own, lost = [np.linspace(0, 1, 11), np.ones(1)], np.full(11, nowhere_is)
    zero, nowhere = np.zeros(11), np.array([nowhere_is])
    assert is_defined(Rival("a", [[zero], [zero[:1]]]).control(own))
    assert not is_defined(Rival("a", [[lost], [zero[:1]]]).control(own))
    assert not is_defined(Rival("a", [[zero], [nowhere]]).control(own))
    assert not is_defined(Rival("a", [[zero], [zero[:1]]]).control([own[0], nowhere]))


def test_a_rival_becomes_a_control_with_seeds() -> None:
    rng = np.random.default_rng(0)
    own = [value + 0.01 * rng.normal(size=41) for value in (0.9, 0.92, 0.91)]
    weak = [d - 0.3 for d in own]
    drawn = Rival("drawn", [[one, one - 0.001, one + 0.004] for one in weak]).control(own)
    assert drawn.name == "drawn (3 draws)"
    assert drawn.difference.value == pytest.approx(0.299)
    assert drawn.seeds is not None
    assert drawn.seeds.ours == tuple(one[0] for one in own)
    assert drawn.seeds.theirs == pytest.approx([one[0] + 0.001 for one in weak])
    assert drawn.seeds.paired
    several = Rival("untrained", [[one] for one in weak], paired=False, pooled=True).control(own[:1], "by f'")
    assert several.title == "untrained (3 seeds), by f'"
    assert several.difference.value == pytest.approx(own[0][0] - np.mean([one[0] for one in weak]))
    assert several.seeds is not None
    assert (several.seeds.n, several.seeds.paired) == (1, False)


def test_one_more_untrained_network_is_rarely_told_apart_from_the_others() -> None:
    """Networks differ much more than half-samples do; the best of five would be beaten one time in six."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        own, *others = (rng.normal() + 0.1 * rng.normal(size=31) for _ in range(6))
        found.append(control("untrained", own, others).p)
    assert np.mean(np.array(found) < LEVEL) == pytest.approx(LEVEL, abs=0.03)
    assert np.mean(np.array(found) > 1 - LEVEL) == pytest.approx(LEVEL, abs=0.03)
    far = control("untrained", own + 100, others)
    assert far.beaten
    assert far.difference.value == pytest.approx(100 + own[0] - np.mean([draws[0] for draws in others]))
    assert not control("untrained", own - 100, others).beaten
    spread = np.std([draws[0] for draws in others], ddof=1)
    apart = own - np.mean(others, axis=0)
    parts = np.array([apart[1:].var(ddof=1), spread**2 * 6 / 5])  # of the half-samples, and of one more network
    freedom = parts.sum() ** 2 / (parts**2 / [len(apart) - 2, 4]).sum()
    near = control("untrained", own, others)
    assert near.p == pytest.approx(stats.t.sf(apart[0] / np.sqrt(parts.sum()), freedom))
    assert near.against == pytest.approx(1 - near.p)
    alone = control("untrained", own + 1, others[:1])  # one network: only the choice of images counts
    apart = own + 1 - others[0]
    assert alone.p == pytest.approx(stats.t.sf(apart[0] / apart[1:].std(ddof=1), len(apart) - 2))
