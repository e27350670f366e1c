"""A claim as a small dot plot: the measured value and its controls with their intervals, on one axis."""

import textwrap
from typing import Any

from tembed.common.extras import needs
from tembed.lab.claims.claim import Claim, Measure
from tembed.lab.report.charts import BASELINE, BLOCK, STYLE, to_svg

WIDTH, ROW, MARGIN = 5.6, 0.23, 0.62
"""In inches: the plot, a row of it, and the axis with its label."""
LONGEST = 34
"""Letters of a name in one line."""


def dot_plot(claim: Claim) -> str:
    """An SVG with the value on top, in the block's colour, and a row for each control, the strongest first.

    A control that is beaten is a grey dot, one that is not is a hollow dot. Below them, controls that are only shown
    are crosses. The dashed line marks the value.
    """
    assert claim.value is not None
    matplotlib = needs("matplotlib")
    rows: list[tuple[str, Measure, str]] = [("measured", claim.value, "full")]
    for controls in (claim.controls, claim.shown):
        for control in sorted(controls, key=lambda control: control.difference.value):
            style = "cross" if controls is claim.shown else "full" if control.beaten else "hollow"
            rows.append((control.title, control.value, style))
    names = [textwrap.fill(name, LONGEST) for name, _, _ in rows]
    lines = sum(name.count("\n") + 1 for name in names)
    with matplotlib.rc_context(STYLE | {"font.size": 9}):
        figure = needs("matplotlib.figure").Figure((WIDTH, MARGIN + ROW * lines), layout="constrained")
        axes = figure.add_subplot()
        for place, (_, measure, style) in enumerate(rows):
            _dot(axes, place, measure, BLOCK if place == 0 else BASELINE, style)
        axes.axvline(claim.value.value, color=BLOCK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
        axes.set_yticks(range(len(rows)), names)
        axes.get_yticklabels()[0].set_color(BLOCK)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color="#dde3ea")
        axes.set_xlabel("claimed: more than every control" if claim.controls else "")
        return to_svg(figure, f"{claim.name}: the measured value and its controls")


def _dot(axes: Any, place: int, measure: Measure, colour: str, style: str) -> None:
    if measure.low is not None:
        axes.plot([measure.low, measure.high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
    face, mark = "white" if style == "hollow" else colour, "x" if style == "cross" else "o"
    axes.plot([measure.value], [place], mark, color=colour, markersize=5.5, markerfacecolor=face, markeredgewidth=1.4)
