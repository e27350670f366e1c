"""The report's statistics against SciPy's, and by hand."""

import numpy as np
import pytest
from scipy import stats

from tembed.experiments.report.statistics import Sample, contrast, holm, two_sided


@pytest.mark.parametrize("freedom", [1.0, 1.3, 2.0, 3.7, 30.0])
@pytest.mark.parametrize("t", [0.0, 0.3, -2.1, 12.0])
def test_students_tails(t: float, freedom: float) -> None:
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-6)


def test_two_samples_are_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 3), (2, 5), (10, 4)):
        a, b = rng.normal(90, 0.3, n), rng.normal(90.5, 0.9, m)
        ours = contrast([Sample(tuple(a))], [Sample(tuple(b))])
        assert ours.value == pytest.approx(a.mean() - b.mean())
        assert ours.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, abs=1e-6)


def test_a_contrast_of_four_samples_has_its_level_under_the_null() -> None:
    """Drawn without any difference, p < 0.05 comes up in about one of twenty."""
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
    assert "two seeds" in one.why_not
    assert Sample((90.0,)).std is None
    assert contrast([Sample((90.0, 90.0))], [Sample((89.0, 89.0))]).p is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
