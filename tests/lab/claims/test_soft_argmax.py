"""The claims about BN-ReLU on planted units, where each must hold, must not hold, and must be unclear."""

import numpy as np
import pytest
from scipy import stats
from support.claims import UNITS, made_claims

from tembed.lab.analysis.compared_runs import ByKind
from tembed.lab.analysis.units import BINS, HIGHEST, LIMIT, Points, Unit
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.soft_argmax import NORMAL_ACCURATE, activation_quantiles

IMAGES, PIXELS, KERNELS = 60, 16, 40
LABELS = np.arange(IMAGES) % 6
SAMPLES = HalfSamples.draw(LABELS, 6, 0)
ARG_MAX, ORDER, MARGIN_ARG_MAX, MARGIN_ORDER, OF_BN, NEAR_ZERO, FEW, CONSTANT = range(8)


def unit(seed: int = 0, *, same: float, ordered: float, active: int, accurate: float, spread: float) -> Unit:
    """A unit whose pixels have these numbers: shares, a number of kernels, and the spread of eta."""
    rng = np.random.default_rng(seed)
    shape = (IMAGES, PIXELS)
    count = np.full(shape, float(active))
    pairs = count * (count - 1) / 2
    noise = rng.normal(size=shape)
    points = Points(
        same=(rng.random(shape) < same).astype(float),
        matched=np.ones(shape),
        chance=1 / count,
        pairs=pairs,
        ordered=rng.binomial(pairs.astype(int), ordered).astype(float),
        margin_same=(rng.random(shape) < same).astype(float),
        margin_ordered=rng.binomial(pairs.astype(int), ordered).astype(float),
        active=count + noise - noise.mean(),
        accurate=rng.binomial(active, accurate, shape).astype(float),
        eta=10 * (1 + spread * rng.normal(size=shape)),
        effective=count,
        raw_active=np.full(shape, KERNELS / 2),
        raw_accurate=rng.binomial(KERNELS // 2, 0.1, shape).astype(float),
        raw_eta=10 * (1 + rng.normal(size=shape)),
    )
    return Unit(f"unit {seed}", KERNELS, points, np.histogram(abs(rng.normal(size=9999)), BINS, (0, HIGHEST))[0])


UNTRAINED = {"same": 0.6, "ordered": 0.7, "active": 20, "accurate": NORMAL_ACCURATE, "spread": 0.3}
EXACT = {"same": 0.99, "ordered": 0.99, "active": 4, "accurate": 0.99, "spread": 0.02}
OFF = {"same": 0.02, "ordered": 0.4, "active": 30, "accurate": 0.2, "spread": 0.6}


def soft_argmax_claims(units: ByKind[list[Unit]]) -> list[Claim]:
    return made_claims(UNITS, {}, SAMPLES, units=units)


def judged(numbers: dict[str, float], seeds: int = 1) -> list[Claim]:
    run = [[unit(10 * s + k, **numbers) for k in range(3)] for s in range(seeds)]  # type: ignore[arg-type]
    untrained = [[unit(100 + 10 * s + k, **UNTRAINED) for k in range(3)] for s in range(3)]  # type: ignore[arg-type]
    return corrected(soft_argmax_claims({"run": run, "untrained": untrained}))


def verdicts(numbers: dict[str, float]) -> list[str]:
    return [claim.weights.verdict for claim in judged(numbers)]


def test_units_that_select_hold_and_others_do_not() -> None:
    assert verdicts(EXACT) == ["holds"] * 4 + ["no verdict"] * 4
    assert verdicts(OFF) == ["does not hold"] * 4 + ["no verdict"] * 4


def test_order_and_arg_max_have_a_claim_for_each_reading() -> None:
    found = judged(EXACT)
    assert [[control.name for control in claim.controls] for claim in found[:4]] == 2 * [
        ["random active kernel", "untrained network (3 seeds)"], ["random order", "untrained network (3 seeds)"],
    ]  # fmt: skip
    assert found[OF_BN].value is not None
    assert found[OF_BN].value.value == 1
    assert found[OF_BN].weights.why.startswith("1 by construction")
    assert {claim.sentence for claim in found} == {"soft arg-max", "constants"}


def test_near_0_is_a_distribution() -> None:
    found = judged(EXACT)[NEAR_ZERO]
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        expected = stats.halfnorm.ppf(level)
        assert found.notes[f"{level:.0%} quantile of x"].value == pytest.approx(expected, abs=0.04)
    assert "the median active x is 0.6" in found.weights.why
    assert activation_quantiles([unit(0, **EXACT)])[0.5] == pytest.approx(0.674, abs=0.04)  # type: ignore[arg-type]


def test_untrained_units_give_no_finding() -> None:
    assert "holds" not in [claim.weights.verdict for claim in judged(UNTRAINED)]


def test_the_method_needs_three_seeds() -> None:
    assert judged(EXACT, seeds=2)[ORDER].method.verdict == "unclear"
    assert judged(EXACT, seeds=3)[ORDER].method.verdict == "holds"
    assert len(judged(EXACT, seeds=3)[FEW].over_seeds) == 3


def test_the_value_is_the_mean_over_units_of_equal_weight() -> None:
    units = [unit(1, **EXACT), unit(2, **OFF)]  # type: ignore[arg-type]
    found = soft_argmax_claims({"run": [units], "baseline": [units[:1]]})
    for number, top, bottom in (
        (ARG_MAX, "same", "matched"),
        (ORDER, "ordered", "pairs"),
        (MARGIN_ARG_MAX, "margin_same", "matched"),
        (MARGIN_ORDER, "margin_ordered", "pairs"),
        (NEAR_ZERO, "accurate", "active"),
    ):
        claim = found[number]
        values = [getattr(one.points, top).sum() / getattr(one.points, bottom).sum() for one in units]
        assert claim.value is not None
        assert claim.value.value == pytest.approx(np.mean(values))
        (baseline,) = (control for control in claim.shown if control.name == "baseline")
        assert baseline.value.value == pytest.approx(values[0])
        assert claim.notes["lowest of the units"].value == pytest.approx(min(values))
    assert found[FEW].value is not None
    assert found[FEW].value.value == pytest.approx(np.mean([one.points.active.mean() / KERNELS for one in units]))
    assert found[CONSTANT].value is not None
    near = [np.mean(np.abs(one.points.eta / one.points.eta.mean() - 1) <= 0.25) for one in units]
    assert found[CONSTANT].value.value == pytest.approx(np.mean(near))


def test_a_network_without_units_is_not_measured() -> None:
    found = soft_argmax_claims({"run": [[]], "untrained": [[]]})
    assert {claim.weights.verdict for claim in found} == {"not measured"}


def test_the_share_of_accurate_normal_activations_is_its_closed_form() -> None:
    assert pytest.approx(2 * stats.norm.cdf(LIMIT) - 1, abs=1e-4) == NORMAL_ACCURATE
