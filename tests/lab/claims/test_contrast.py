"""The report's statistical tests against SciPy's, simulations, and numbers computed by hand."""

import numpy as np
import pytest
from scipy import stats

from tembed.lab.claims.contrast import ON_PAR, Contrast
from tembed.lab.grid.cells import Sample


def contrast(plus: list[Sample], minus: list[Sample], images: int = 10_000, *, on_par: bool = False) -> Contrast:
    return Contrast("plus > minus", tuple(plus), tuple(minus), images, on_par)


def test_a_contrast_of_two_samples_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 3), (2, 5), (10, 4)):
        a, b = rng.normal(90, 0.3, n), rng.normal(90.5, 0.9, m)
        ours = contrast([Sample(tuple(a))], [Sample(tuple(b))])
        assert ours.value == pytest.approx(a.mean() - b.mean())
        assert ours.seed_test()[0] == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)
        greater = stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue
        assert ours.seed_tails() == pytest.approx((greater, 1 - greater), rel=1e-9)


def test_a_contrast_of_four_samples_has_its_level_under_the_null() -> None:
    """Without a true difference, p < 0.05 appears about once in twenty draws."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        draws = [Sample(tuple(rng.normal(0, spread, 5))) for spread in (1, 1, 2, 0.5)]
        p = contrast(draws[:2], draws[2:]).seed_test()[0]
        hits += p is not None and p < 0.05
    assert 4 <= hits <= 40


def test_one_seed_allows_no_test() -> None:
    one = contrast([Sample((90.0,))], [Sample((89.0, 89.5))])
    assert one.value == pytest.approx(0.75)
    assert one.seed_test() == (None, "needs two seeds each")
    assert Sample((90.0,)).std is None
    equal = contrast([Sample((90.0, 90.0))], [Sample((89.0, 89.0))])
    assert equal.seed_test()[0] is None
    assert equal.seed_tails() == (1.0, 1.0)


def test_the_error_over_images_is_that_of_simulated_test_sets() -> None:
    """Two networks on different images; seeds on the same images do not reduce the error."""
    rng = np.random.default_rng(2)
    first, second = (rng.binomial(500, share, 20_000) / 5 for share in (0.9, 0.7))
    found = contrast([Sample((90.0, 89.0, 91.0))], [Sample((70.0, 71.0, 69.0))], 500)
    assert found.image_error() == pytest.approx(np.std(first - second), rel=0.02)
    z = 20 / np.std(first - second)
    assert found.image_tails() == pytest.approx((stats.norm.sf(z), stats.norm.cdf(z)), abs=1e-6)
    near = contrast([Sample((71.0,))], [Sample((70.0,))], 500)
    assert near.image_tails()[0] == pytest.approx(stats.norm.sf(1 / near.image_error()), rel=1e-6)


def test_a_mean_that_rounding_put_above_100_has_no_error_over_images() -> None:
    above = Sample((100.00000000000003,))
    assert contrast([above], [above]).image_error() == 0


def test_networks_on_par_pass_two_one_sided_tests() -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.6, -0.6, 1.5, -1.5):
        a, b = rng.normal(90 + shift, 0.3, 5), rng.normal(90, 0.3, 5)
        p, against = contrast([Sample(tuple(a))], [Sample(tuple(b))], on_par=True).seed_tails()
        above = stats.ttest_ind(a + ON_PAR, b, equal_var=False, alternative="greater").pvalue
        below = stats.ttest_ind(a - ON_PAR, b, equal_var=False, alternative="less").pvalue
        assert p == pytest.approx(max(above, below))
        assert against == pytest.approx(1 - max(above, below))


def test_networks_on_the_same_images_are_compared_in_pairs() -> None:
    """As McNemar's test does: only images on which the networks differ count."""
    rng = np.random.default_rng(0)
    theirs = rng.random(12_000) < 0.9
    ours = theirs.copy()
    ours[rng.choice(np.flatnonzero(~theirs), 426, replace=False)] = True
    ours[rng.choice(np.flatnonzero(theirs), 353, replace=False)] = False
    samples = [Sample((100 * right.mean(),), right.astype(float)) for right in (ours, theirs)]
    paired = contrast([samples[0]], [samples[1]], 12_000)
    exact = stats.binomtest(426, 779, alternative="greater").pvalue
    assert paired.image_tails()[0] == pytest.approx(exact, rel=0.1)
    assert paired.shown().endswith(", paired")
    separate = contrast([Sample(samples[0].values)], [samples[1]], 12_000)
    assert separate.image_tails()[0] > 5 * exact
    assert not separate.is_paired


def test_seeds_of_the_same_images_are_averaged() -> None:
    """The loop over images, written out."""
    rng = np.random.default_rng(1)
    both = rng.random((2, 500)) < 0.7
    other = rng.random(500) < 0.6
    mean = Sample(tuple(100 * both.mean(1)), both.mean(0))
    apart = [(float(a) + float(b)) / 2 - float(c) for a, b, c in zip(*both, other, strict=True)]
    found = contrast([mean], [Sample((100 * other.mean(),), other.astype(float))], 500)
    assert found.image_error() == pytest.approx(100 * np.std(apart, ddof=1) / np.sqrt(500))
    assert found.value == pytest.approx(100 * np.mean(apart))
