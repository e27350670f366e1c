"""The claims about BN-ReLU on planted units, where each must hold, must not hold, and must be unclear."""

import numpy as np
import pytest
from scipy import stats
from support.claims import UNITS, made_claims

from tembed.lab.analysis.compared_runs import ByKind
from tembed.lab.analysis.units import LIMIT, Points, Unit
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.soft_argmax import NORMAL_ACCURATE

IMAGES, PIXELS, KERNELS = 60, 16, 40
LABELS = np.arange(IMAGES) % 6
SAMPLES = HalfSamples.draw(LABELS, 6, 0)
ARG_MAX, ORDER, NEAR_ZERO, FEW, CONSTANT = range(5)


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
        active=count + noise - noise.mean(),
        accurate=rng.binomial(active, accurate, shape).astype(float),
        eta=10 * (1 + spread * rng.normal(size=shape)),
        effective=count,
        raw_active=np.full(shape, KERNELS / 2),
        raw_accurate=rng.binomial(KERNELS // 2, 0.1, shape).astype(float),
        raw_eta=10 * (1 + rng.normal(size=shape)),
    )
    return Unit(f"unit {seed}", KERNELS, points)


UNTRAINED = {"same": 0.6, "ordered": 0.7, "active": 20, "accurate": NORMAL_ACCURATE, "spread": 0.3}
EXACT = {"same": 0.99, "ordered": 0.99, "active": 2, "accurate": 0.99, "spread": 0.02}
OFF = {"same": 0.5, "ordered": 0.6, "active": 30, "accurate": 0.2, "spread": 0.6}


def soft_argmax_claims(units: ByKind[list[Unit]]) -> list[Claim]:
    return made_claims(UNITS, {}, SAMPLES, units=units)


def judged(numbers: dict[str, float], seeds: int = 1) -> list[Claim]:
    run = [[unit(10 * s + k, **numbers) for k in range(3)] for s in range(seeds)]  # type: ignore[arg-type]
    untrained = [[unit(100 + 10 * s + k, **UNTRAINED) for k in range(3)] for s in range(3)]  # type: ignore[arg-type]
    return corrected(soft_argmax_claims({"run": run, "untrained": untrained}))


def test_units_that_select_hold() -> None:
    assert [claim.weights.verdict for claim in judged(EXACT)] == ["holds"] * 5


def test_units_that_do_not_select_do_not_hold() -> None:
    assert [claim.weights.verdict for claim in judged(OFF)] == ["does not hold"] * 5


def test_a_better_arg_max_than_untrained_is_not_enough_if_it_is_not_almost_always_kept() -> None:
    found = judged(EXACT | {"same": 0.8})[ARG_MAX]
    assert found.weights.verdict == "does not hold"
    assert "95% of the cases" in found.weights.why
    beaten = {control.name for control in found.controls if control.beaten}
    assert beaten == {"random active kernel", "untrained network (3 seeds)"}


def test_numbers_at_the_limit_are_unclear() -> None:
    found = judged(EXACT | {"same": 0.955, "active": 20})
    assert found[ARG_MAX].weights.verdict == "unclear"
    assert found[FEW].weights.verdict == "unclear"  # exactly half of the kernels, as without training


def test_untrained_units_give_no_finding() -> None:
    assert "holds" not in [claim.weights.verdict for claim in judged(UNTRAINED)]


def test_the_method_needs_three_seeds() -> None:
    assert judged(EXACT, seeds=2)[ORDER].method.verdict == "unclear"
    assert judged(EXACT, seeds=3)[ORDER].method.verdict == "holds"


def test_the_value_is_the_mean_over_units_of_equal_weight() -> None:
    units = [unit(1, **EXACT), unit(2, **OFF)]  # type: ignore[arg-type]
    found = soft_argmax_claims({"run": [units], "baseline": [units[:1]]})
    for claim, (top, bottom) in zip(
        found[:3], (("same", "matched"), ("ordered", "pairs"), ("accurate", "active")), strict=True
    ):
        values = [getattr(one.points, top).sum() / getattr(one.points, bottom).sum() for one in units]
        assert claim.value is not None
        assert claim.value.value == pytest.approx(np.mean(values))
        assert claim.notes["baseline"].value == pytest.approx(values[0])
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
