"""Is BN-ReLU a soft arg-max? Measured in every unit of a trained network, with or without a block (§3.2).

Each number is a mean over the units, in which all units have the same weight.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tembed.lab.analysis.units import LIMIT, TOLERANCE, Array, Unit
from tembed.lab.analysis.units_of_networks import NetworkUnits
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Measure, not_measured
from tembed.lab.claims.half_samples import Draws, Evidence, HalfSamples, claim, measure

ENOUGH = 0.95
"""Share of cases in which a statement of the paper without exceptions must be true."""
NEAR = 0.25
"""A sum of activations is near its mean if it is off by at most this share of it."""
NORMAL_ACCURATE = 0.4051
"""``P(x <= LIMIT | x > 0)`` for a standard normal x, as in a unit whose BN has no learned scale and shift."""
NO_UNITS = "in this network, no BN-ReLU follows a 3x3 convolution"
ALWAYS = f"{ENOUGH:.0%} of the cases"

Count = Callable[[Unit], tuple[Array, Array]]
"""The numbers of a unit whose sums make a ratio, each ``(N, S)``."""


def soft_argmax_claims(units: NetworkUnits, samples: HalfSamples) -> list[Claim]:
    """Five claims about the units of the run, beside those of untrained networks; the baseline's are notes."""
    return [
        _claim(
            "BN-ReLU preserves the arg-max",
            "BN-ReLU is a soft maximizer of the best matching kernel",
            "share of the pixels with an active kernel at which the largest activation after BN-ReLU belongs to the "
            "kernel with the largest activation before it; ReLU alone always preserves it",
            units,
            samples,
            lambda unit: (unit.points.same, unit.points.matched),
            {"random active kernel": lambda unit: (unit.points.chance, unit.points.matched)},
            {ALWAYS: ENOUGH},
        ),
        _claim(
            "BN-ReLU preserves the order of active kernels",
            "BN-ReLU preserves the relative ordering of the values of the entropic solution, which is that of the "
            "activations",
            "share of the pairs of active kernels at a pixel that are in the same order before and after BN-ReLU; ReLU "
            "alone always preserves it",
            units,
            samples,
            lambda unit: (unit.points.ordered, unit.points.pairs),
            {},
            {"random order": 0.5, ALWAYS: ENOUGH},
        ),
        _claim(
            "normalised activations are near 0, where e^x is 1 + x",
            "BN maps activations around 0, where e^x is about 1 + x, so that BN-ReLU approximates an unnormalised "
            "soft-max",
            f"share of the active kernels at a pixel whose normalised activation x is at most {LIMIT:.2f}, so that "
            f"1 + x is within {TOLERANCE:.0%} of e^x",
            units,
            samples,
            lambda unit: (unit.points.accurate, unit.points.active),
            {"ReLU without BN": lambda unit: (unit.points.raw_accurate, unit.points.raw_active)},
            {"standard normal activations": NORMAL_ACCURATE, ALWAYS: ENOUGH},
        ),
        _claim(
            "few kernels are active",
            "BN-ReLU selects the best matching kernels",
            "share of a unit's kernels that are active at a pixel",
            units,
            samples,
            lambda unit: (unit.points.active, np.full_like(unit.points.active, unit.kernels)),
            {"ReLU without BN": lambda unit: (unit.points.raw_active, np.full_like(unit.points.active, unit.kernels))},
            {"half of the kernels": 0.5},
            less=True,
        ),
        _claim(
            "the sum of the activations is nearly constant",
            "the scale eta of the mixture can be replaced by a constant (§4.1)",
            f"share of the pixels at which the sum of the activations is within {NEAR:.0%} of its mean in the unit",
            units,
            samples,
            lambda unit: _near(unit.points.eta),
            {"ReLU without BN": lambda unit: _near(unit.points.raw_eta)},
            {ALWAYS: ENOUGH},
        ),
    ]


def _claim(
    name: str,
    paper: str,
    definition: str,
    units: NetworkUnits,
    samples: HalfSamples,
    count: Count,
    controls: dict[str, Count],
    constants: dict[str, float],
    *,
    less: bool = False,
) -> Claim:
    if not units.run[0]:
        return not_measured(name, paper, NO_UNITS)
    drawn = [samples] + [samples.first(0)] * (len(units.run) - 1)
    own = [_mean(one, count, some) for one, some in zip(units.run, drawn, strict=True)]
    within = {
        named: [_mean(one, other, some) for one, some in zip(units.run, drawn, strict=True)]
        for named, other in controls.items()
    }
    within |= {named: [some.constant(value) for some in drawn] for named, value in constants.items()}
    blank = [_mean(one, count, samples) for one in units.untrained]
    notes: dict[str, Measure] = {}
    if units.baseline and units.baseline[0]:
        notes["baseline"] = measure(_mean(units.baseline[0], count, samples))
    values = [_ratio(count(unit)) for unit in units.run[0]]
    notes |= {"lowest of the units": Measure(min(values)), "highest of the units": Measure(max(values))}
    return claim(name, paper, definition, Evidence(own, within, untrained=blank), less=less, notes=notes)


def _mean(units: Sequence[Unit], count: Count, samples: HalfSamples) -> Draws:
    """The mean over the units of the ratio that ``count`` gives."""
    found: Draws = np.mean([samples.ratio(*(part.ravel() for part in count(unit))) for unit in units], axis=0)
    return found


def _ratio(parts: tuple[Array, Array]) -> float:
    return float(parts[0].sum() / parts[1].sum())


def _near(eta: Array) -> tuple[Array, Array]:
    """At which points a sum is near its mean, and all points."""
    return (np.abs(eta - eta.mean()) <= NEAR * eta.mean()).astype(np.float64), np.ones_like(eta)


register_claim("soft arg-max", lambda analysis: soft_argmax_claims(analysis.units, analysis.samples))
