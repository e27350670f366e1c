"""The report's statistical tests against SciPy's, a simulation, and numbers computed by hand."""

import numpy as np
import pytest
from scipy import stats

from tembed.experiments.report.statistics import Sample, contrast, holm


def test_a_contrast_of_two_samples_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 3), (2, 5), (10, 4)):
        a, b = rng.normal(90, 0.3, n), rng.normal(90.5, 0.9, m)
        ours = contrast([Sample(tuple(a))], [Sample(tuple(b))])
        assert ours.value == pytest.approx(a.mean() - b.mean())
        assert ours.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)


def test_a_contrast_of_four_samples_has_its_level_under_the_null() -> None:
    """Without a true difference, p < 0.05 appears about once in twenty draws."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        draws = [Sample(tuple(rng.normal(0, spread, 5))) for spread in (1, 1, 2, 0.5)]
        p = contrast(draws[:2], draws[2:]).p
        hits += p is not None and p < 0.05
    assert 4 <= hits <= 40


def test_one_seed_allows_no_test() -> None:
    one = contrast([Sample((90.0,))], [Sample((89.0, 89.5))])
    assert one.value == pytest.approx(0.75)
    assert one.p is None
    assert "two or more seeds" in one.why_not
    assert Sample((90.0,)).std is None
    assert contrast([Sample((90.0, 90.0))], [Sample((89.0, 89.0))]).p is None


def test_holms_correction_equals_a_calculation_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
