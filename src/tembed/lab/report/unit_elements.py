"""The units in a report."""

from collections.abc import Sequence

import numpy as np

from tembed.lab.analysis.compared_runs import BASELINE, RUN, ByKind
from tembed.lab.analysis.units import Unit
from tembed.lab.report.document import Details, Element, Heading, Table, Text
from tembed.paper import ETA

EXPLAINED = (
    "§3.2 reads BN-ReLU behind a 3x3 convolution as a soft arg-max over its kernels. Arg-max and order kept: how often "
    "BN-ReLU leaves the best kernel, and the order of two active kernels, as they are; in brackets, a random active "
    "kernel. Active: share of the kernels above 0. Accurate: share of them where 1 + x is close to e^x. eta: mean sum "
    f"of the activations and its standard deviation as a share of it; the paper replaces it by {ETA:g}. Effective: "
    "exponential of the entropy of the mixing weights."
)


def unit_elements(units: ByKind[list[Unit]], baseline: str | None = None) -> list[Element]:
    """A table of the run's units, and of the baseline's folded away."""
    if not units[RUN][0]:
        return []
    elements: list[Element] = [Heading("BN-ReLU as a soft arg-max"), Text(EXPLAINED), unit_table(units[RUN][0])]
    for its in units.get(BASELINE, ())[:1]:
        title = f"The units of the baseline {baseline or ''}".strip()
        elements += [Details(title, (unit_table(its),))] if its else []
    return elements


def unit_table(units: Sequence[Unit]) -> Table:
    """One row for each unit."""
    header = ("unit", "kernels", "arg-max kept", "order kept", "active", "accurate", "eta", "effective", "no match")
    rows = []
    for unit in units:
        p = unit.points
        with np.errstate(invalid="ignore", divide="ignore"):
            rows.append(
                (
                    unit.name,
                    str(unit.kernels),
                    f"{p.same.sum() / p.matched.sum():.1%} ({p.chance.sum() / p.matched.sum():.1%})",
                    f"{p.ordered.sum() / p.pairs.sum():.1%}",
                    f"{p.active.mean() / unit.kernels:.1%}",
                    f"{p.accurate.sum() / p.active.sum():.1%}",
                    f"{p.eta.mean():.1f} ± {p.eta.std() / p.eta.mean():.0%}",
                    f"{p.effective.sum() / p.matched.sum():.1f}",
                    f"{1 - p.matched.mean():.1%}",
                )
            )
    return Table(header, tuple(rows))
