"""Is BN-ReLU a soft arg-max? Measured in every unit of a trained network, with or without a block (§3.2).

Each number is a mean over the units, in which all units have the same weight.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tembed.lab.analysis.compared_runs import BASELINE, RUN
from tembed.lab.analysis.units import BINS, HIGHEST, LIMIT, NO_UNITS, TOLERANCE, Array, Unit
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK, register_control
from tembed.lab.claims.half_samples import Draws, HalfSamples
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.paper import CONSTANTS, SOFT_ARG_MAX, Sentence

NEAR = 0.25
"""A sum of activations is near its mean if it is off by at most this share of it."""
NORMAL_ACCURATE = 0.4051
"""``P(x <= LIMIT | x > 0)`` for a standard normal x, as in a unit whose BN has no learned scale and shift."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the normalised activations of active kernels."""

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


def _counts(top: str, bottom: str, unit: Unit) -> tuple[Array, Array]:
    return getattr(unit.points, top), getattr(unit.points, bottom)


def _near(eta: Array) -> tuple[Array, Array]:
    """At which points a sum is near its mean, and all points."""
    return (np.abs(eta - eta.mean()) <= NEAR * eta.mean()).astype(np.float64), np.ones_like(eta)


def _extremes(found: Found) -> dict[str, Measure]:
    units = found.own[0].units
    return {"lowest of the units": Measure(min(units)), "highest of the units": Measure(max(units))}


def activation_quantiles(units: Sequence[Unit]) -> dict[float, float]:
    """Quantiles of the active kernels' normalised activations, up to a bin; all units have the same weight."""
    shares = np.mean([unit.histogram / unit.histogram.sum() for unit in units], axis=0)
    below = np.cumsum(shares)
    return {level: float((np.searchsorted(below, level) + 1) * HIGHEST / BINS) for level in QUANTILES}


def _quantiles(found: Found) -> dict[str, Measure]:
    known = activation_quantiles(found.analysis.units[RUN][0])
    return _extremes(found) | {f"{level:.0%} quantile of x": Measure(value) for level, value in known.items()}


def _spread(found: Found) -> str:
    known = activation_quantiles(found.analysis.units[RUN][0])
    low, *_, high = known.values()
    return f"the paper names no limit; the median active x is {known[0.5]:.2f}, 90 % lie from {low:.2f} to {high:.2f}"


def _register(
    name: str,
    definition: str,
    count: Count,
    controls: tuple[str, ...] = (),
    others: Mapping[str, Count] | None = None,
    *,
    paper: Sentence = SOFT_ARG_MAX,
    no_verdict: str | Callable[[Found], str] = "",
    notes: Callable[[Found], Mapping[str, Measure]] = _extremes,
) -> None:
    """Register a claim about the ratio that ``count`` gives, beside that of ``others``, constants and no training."""
    beside = others or {}

    def ratios(subject: Subject) -> Ratios:
        units, samples = subject.units, subject.samples
        found = {named: _mean(units, other, samples) for named, other in beside.items()}
        return Ratios(_mean(units, count, samples), found, [_ratio(count(unit)) for unit in units])

    register_claim(
        ClaimSpec(
            name,
            paper,
            definition,
            ratios,
            (*controls, BLANK),
            shown=(BASELINE,),
            no_verdict=no_verdict,
            value=lambda result: result.mean,
            beside=lambda found: {named: [one.others[named] for one in found.own] for named in beside},
            notes=notes,
            missing=lambda analysis: None if analysis.units[RUN][0] else NO_UNITS,
            about="units",
        )
    )


for _name, _value in {"random order": 0.5, "standard normal activations": NORMAL_ACCURATE}.items():
    register_control(_name, constant=_value)

READINGS = {
    "a": ("the activations", "same", "ordered"),
    "a - mu": ("the activations minus the margin that BN implies for each kernel", "margin_same", "margin_ordered"),
}
"""What the order of the entropic solution may be that of, in words, with the fields of `Points` that count it."""
BY_CONSTRUCTION = "1 by construction: ReLU keeps the order of what it lets pass"
ASSUMED = "the paper does not claim it; the ablation assumes it"

for _reading, (_meaning, _same, _ordered) in READINGS.items():
    _register(
        f"BN-ReLU preserves the arg-max of {_reading}",
        "share of the pixels with an active kernel at which the kernel with the largest activation behind BN-ReLU is "
        f"the arg-max of {_reading}, {_meaning}",
        partial(_counts, _same, "matched"),
        others={"random active kernel": lambda unit: (unit.points.chance, unit.points.matched)},
    )
    _register(
        f"BN-ReLU preserves the order of {_reading}",
        f"share of the pairs of active kernels at a pixel whose order behind BN-ReLU is that of {_reading}, {_meaning}",
        partial(_counts, _ordered, "pairs"),
        ("random order",),
    )
_register(
    "BN-ReLU preserves the order of BN(a)",
    "share of the pairs of active kernels at a pixel whose order behind BN-ReLU is that of BN(a)",
    lambda unit: (unit.points.pairs, unit.points.pairs),
    no_verdict=BY_CONSTRUCTION,
)
_register(
    "normalised activations are near 0, where e^x is 1 + x",
    f"share of the active kernels at a pixel whose normalised activation x is at most {LIMIT:.2f}, so that 1 + x is "
    f"within {TOLERANCE:.0%} of e^x",
    lambda unit: (unit.points.accurate, unit.points.active),
    ("standard normal activations",),
    {WITHOUT_BN: lambda unit: (unit.points.raw_accurate, unit.points.raw_active)},
    no_verdict=_spread,
    notes=_quantiles,
)
_register(
    "few kernels are active",
    "share of a unit's kernels that are active at a pixel",
    lambda unit: (unit.points.active, np.full_like(unit.points.active, unit.kernels)),
    others={WITHOUT_BN: lambda unit: (unit.points.raw_active, np.full_like(unit.points.active, unit.kernels))},
    paper=CONSTANTS,
    no_verdict=ASSUMED,
)
_register(
    "the sum of the activations is nearly constant",
    f"share of the pixels at which the sum of the activations is within {NEAR:.0%} of its mean in the unit",
    lambda unit: _near(unit.points.eta),
    others={WITHOUT_BN: lambda unit: _near(unit.points.raw_eta)},
    paper=CONSTANTS,
    no_verdict=ASSUMED,
)
