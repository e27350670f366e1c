"""Is BN-ReLU a soft arg-max? Measured in every unit of a trained network, with or without a block (§3.2).

Each number is a mean over the units, in which all units have the same weight.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tembed.lab.analysis.compared_runs import BASELINE, RUN
from tembed.lab.analysis.units import LIMIT, NO_UNITS, TOLERANCE, Array, Unit
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK, register_control
from tembed.lab.claims.half_samples import Draws, HalfSamples
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim

ENOUGH = 0.95
"""Share of cases in which a statement of the paper without exceptions must be true."""
NEAR = 0.25
"""A sum of activations is near its mean if it is off by at most this share of it."""
NORMAL_ACCURATE = 0.4051
"""``P(x <= LIMIT | x > 0)`` for a standard normal x, as in a unit whose BN has no learned scale and shift."""
ALWAYS = f"{ENOUGH:.0%} of the cases"

Count = Callable[[Unit], tuple[Array, Array]]
"""The numbers of a unit whose sums make a ratio, each ``(N, S)``."""


WITHOUT_BN = "ReLU without BN"


@dataclass(frozen=True)
class Ratios:
    """A ratio as a mean over the units, the same for other numbers of the units, and the units one by one."""

    mean: Draws
    others: Mapping[str, Draws]
    units: Sequence[float]


def _mean(units: Sequence[Unit], count: Count, samples: HalfSamples) -> Draws:
    """The mean over the units of the ratio that ``count`` gives."""
    found: Draws = np.mean([samples.ratio(*(part.ravel() for part in count(unit))) for unit in units], axis=0)
    return found


def _ratio(parts: tuple[Array, Array]) -> float:
    return float(parts[0].sum() / parts[1].sum())


def _near(eta: Array) -> tuple[Array, Array]:
    """At which points a sum is near its mean, and all points."""
    return (np.abs(eta - eta.mean()) <= NEAR * eta.mean()).astype(np.float64), np.ones_like(eta)


def _notes(found: Found) -> dict[str, Measure]:
    notes = found.note("baseline", BASELINE) if any(found.analysis.units.get(BASELINE, ())) else {}
    units = found.own[0].units
    return notes | {"lowest of the units": Measure(min(units)), "highest of the units": Measure(max(units))}


def _register(
    name: str,
    paper: str,
    definition: str,
    count: Count,
    others: Mapping[str, Count],
    constants: tuple[str, ...],
    *,
    less: bool = False,
) -> None:
    """Register a claim about the ratio that ``count`` gives, beside that of ``others``, constants and no training."""

    def ratios(subject: Subject) -> Ratios:
        units, samples = subject.units, subject.samples
        beside = {named: _mean(units, other, samples) for named, other in others.items()}
        return Ratios(_mean(units, count, samples), beside, [_ratio(count(unit)) for unit in units])

    register_claim(
        ClaimSpec(
            name,
            paper,
            definition,
            ratios,
            (*constants, BLANK),
            value=lambda result: result.mean,
            beside=lambda found: {named: [one.others[named] for one in found.own] for named in others},
            notes=_notes,
            missing=lambda analysis: None if analysis.units[RUN][0] else NO_UNITS,
            about="units",
            less=less,
        )
    )


for _name, _value in {
    ALWAYS: ENOUGH,
    "random order": 0.5,
    "standard normal activations": NORMAL_ACCURATE,
    "half of the kernels": 0.5,
}.items():
    register_control(_name, constant=_value)

_register(
    "BN-ReLU preserves the arg-max",
    "BN-ReLU is a soft maximizer of the best matching kernel",
    "share of the pixels with an active kernel at which the largest activation after BN-ReLU belongs to the kernel "
    "with the largest activation before it; ReLU alone always preserves it",
    lambda unit: (unit.points.same, unit.points.matched),
    {"random active kernel": lambda unit: (unit.points.chance, unit.points.matched)},
    (ALWAYS,),
)
_register(
    "BN-ReLU preserves the order of active kernels",
    "BN-ReLU preserves the relative ordering of the values of the entropic solution, which is that of the activations",
    "share of the pairs of active kernels at a pixel that are in the same order before and after BN-ReLU; ReLU alone "
    "always preserves it",
    lambda unit: (unit.points.ordered, unit.points.pairs),
    {},
    ("random order", ALWAYS),
)
_register(
    "normalised activations are near 0, where e^x is 1 + x",
    "BN maps activations around 0, where e^x is about 1 + x, so that BN-ReLU approximates an unnormalised soft-max",
    f"share of the active kernels at a pixel whose normalised activation x is at most {LIMIT:.2f}, so that 1 + x is "
    f"within {TOLERANCE:.0%} of e^x",
    lambda unit: (unit.points.accurate, unit.points.active),
    {WITHOUT_BN: lambda unit: (unit.points.raw_accurate, unit.points.raw_active)},
    ("standard normal activations", ALWAYS),
)
_register(
    "few kernels are active",
    "BN-ReLU selects the best matching kernels",
    "share of a unit's kernels that are active at a pixel",
    lambda unit: (unit.points.active, np.full_like(unit.points.active, unit.kernels)),
    {WITHOUT_BN: lambda unit: (unit.points.raw_active, np.full_like(unit.points.active, unit.kernels))},
    ("half of the kernels",),
    less=True,
)
_register(
    "the sum of the activations is nearly constant",
    "the scale eta of the mixture can be replaced by a constant (§4.1)",
    f"share of the pixels at which the sum of the activations is within {NEAR:.0%} of its mean in the unit",
    lambda unit: _near(unit.points.eta),
    {WITHOUT_BN: lambda unit: _near(unit.points.raw_eta)},
    (ALWAYS,),
)
