"""Line charts as SVG, readable on a phone."""

import html
import io
import re
import textwrap
import warnings
from dataclasses import dataclass
from typing import Any

from tembed.common.extras import needs
from tembed.common.fonts import set_fonts
from tembed.common.palette import BASELINE as BASELINE
from tembed.common.palette import BLOCK as BLOCK

WIDTH, HEIGHT, LEGEND_ROW = 5.0, 3.1, 0.2
"""In inches. An inch is 72 SVG units, so 10-point text takes about 10 pixels on a screen 390 pixels wide."""
ONE_COLUMN, LONGEST = 22, 46
"""Letters: with a name of the first length, the legend has one column instead of two; beyond the second, names wrap."""
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#1c2430",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 10,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "svg.hashsalt": "tembed",  # the same chart gives the same bytes
}


@dataclass(frozen=True)
class Series:
    """Points ``(x, y, spread)``; ``spread`` is one standard deviation, 0 if there is none.

    ``line`` is matplotlib's line style. A series without a name is not in the legend. ``thin``: it accompanies another
    one, such as training images beside validation images. Numbers that were not ``measured`` here, but printed in the
    paper, have a dashed line and hollow dots.
    """

    name: str
    points: tuple[tuple[float, float, float], ...]
    colour: str
    line: str = "-"
    joined: bool = True
    dots: bool = True
    measured: bool = True
    thin: bool = False


def chart(
    series: list[Series],
    x_label: str,
    y_label: str,
    names: dict[float, str] | None = None,
    *,
    from_zero: bool = False,
) -> str:
    """An SVG of these series with a legend below. ``names`` labels positions on the x axis instead of numbers.

    ``from_zero`` starts the y axis at 0, for shares.
    """
    matplotlib = needs("matplotlib")
    labels = [textwrap.fill(s.name, LONGEST) for s in series]
    columns = 1 if any(len(s.name) >= ONE_COLUMN for s in series) else 2
    rows = sum(name.count("\n") for name in labels) - (-sum(map(bool, labels)) // columns)
    with matplotlib.rc_context(STYLE):
        figure = needs("matplotlib.figure").Figure((WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
        axes = figure.add_subplot()
        for s, label in zip(series, labels, strict=True):
            xs, ys, spreads = zip(*s.points, strict=True)
            axes.errorbar(
                xs,
                ys,
                yerr=spreads if any(spreads) else None,
                label=label or None,
                color=s.colour,
                linestyle=("--" if not s.measured else s.line) if s.joined else "none",
                linewidth=0.8 if s.thin else 1.8,
                marker="o" if s.dots else None,
                markersize=5,
                markerfacecolor=s.colour if s.measured else "white",
                capsize=3,
            )
        axes.grid(axis="y", color="#dde3ea")
        axes.margins(y=0.08)
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if names:
            axes.set_xticks(list(names), list(names.values()))
            axes.set_xlim(min(names) - 0.5, max(names) + 0.5)
        elif all(float(x).is_integer() for s in series for x, _, _ in s.points):
            axes.xaxis.get_major_locator().set_params(integer=True)
        if any(labels):
            figure.legend(loc="outside lower center", ncols=columns)
        return to_svg(figure, f"{y_label} over {x_label}")


def to_svg(figure: Any, title: str) -> str:
    """A figure as SVG for use inside an HTML page: no XML header, no metadata with addresses, no repeated group ids."""
    text = io.StringIO()
    set_fonts(figure)
    with warnings.catch_warnings():  # the browser may have a font for a character that no font here has
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    opening, _, rest = svg.partition(">")
    return f'{opening} role="img">\n <title>{html.escape(title)}</title>{rest}'
