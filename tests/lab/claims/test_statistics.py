"""Tests and corrections agree with SciPy where it has the same, with definitions, and with simulations."""

import numpy as np
import pytest
from scipy import stats

from tembed.lab.claims.statistics import LEVEL, at_least, combined_error, detectable_gap, half_width, holm, one_sided


def test_two_samples_give_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 5), (10, 4)):
        a, b = rng.normal(0, 0.3, n), rng.normal(0.5, 0.9, m)
        error, freedom = combined_error([(a.var(ddof=1) / n, n - 1), (b.var(ddof=1) / m, m - 1)])
        greater = stats.ttest_ind(a, b, equal_var=False, alternative="greater")
        assert freedom == pytest.approx(greater.df)
        assert one_sided(a.mean() - b.mean(), error, freedom) == pytest.approx((greater.pvalue, 1 - greater.pvalue))
        low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        assert half_width(error, freedom) == pytest.approx((high - low) / 2)


def test_a_single_sample_keeps_its_error_and_freedom() -> None:
    values = np.random.default_rng(1).normal(0.1, 1, 6)
    error, freedom = combined_error([(values.var(ddof=1) / 6, 5)])
    assert (error, freedom) == pytest.approx((stats.sem(values), 5))
    assert one_sided(values.mean(), error, freedom)[0] == pytest.approx(
        stats.ttest_1samp(values, 0, alternative="greater").pvalue
    )


def test_without_error_the_sign_decides() -> None:
    assert combined_error([(0.0, 4), (0.0, 2)]) == (0, 2)
    assert [one_sided(gap, 0.0, 2) for gap in (0.1, -0.1, 0.0)] == [(0, 1), (1, 0), (1, 1)]


def test_holm_agrees_with_its_definition() -> None:
    ps = [0.01, 0.04, 0.03, 0.005]
    assert holm(ps) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@pytest.mark.parametrize(("n", "m"), [(3, None), (5, None), (3, 3), (4, 6)])
def test_the_smallest_gap_is_found_four_times_in_five(n: int, m: int | None) -> None:
    rng = np.random.default_rng(0)
    gap = detectable_gap(2.0, n, m)
    ours = rng.normal(gap, 2.0, size=(4000, n))
    if m is None:
        p = stats.ttest_1samp(ours, 0, axis=1, alternative="greater").pvalue
    else:
        p = stats.ttest_ind(ours, rng.normal(0, 2.0, size=(4000, m)), axis=1, alternative="greater").pvalue
    assert (p < LEVEL).mean() == pytest.approx(0.8, abs=0.03)


def test_the_p_value_of_at_least_some_effects() -> None:
    ps = [0.2, 0.01, 0.04]
    assert at_least(ps, 3) == 0.2  # all: the largest
    assert at_least(ps, 1) == pytest.approx(0.03)  # any: Bonferroni's
    assert at_least(ps, 2) == pytest.approx(0.08)
    assert at_least([0.9], 1) == 0.9
    assert at_least([0.6, 0.7], 1) == 1.0


def test_at_least_two_of_three_has_its_level_if_only_one_effect_exists() -> None:
    rng = np.random.default_rng(4)
    hits = np.mean([at_least([0.0, *rng.uniform(size=2)], 2) < 0.05 for _ in range(4000)])
    assert 0.035 < hits < 0.065
