"""Texts of a matplotlib figure that cannot be read."""

from itertools import combinations
from typing import Any

from tembed.common.extras import needs
from tembed.lab.analysis.figures import figure_png

SLACK = 1.0
"""Pixels by which two boxes may touch."""


def unreadable(made: Any) -> list[str]:
    """The texts of a figure that overlap another text, or that lie partly outside the figure."""
    figure_png(made)  # lays out the figure, with the fonts that it is saved with
    hidden = {id(text) for axes in made.axes for text in _not_drawn(axes)}
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in made.findobj(needs("matplotlib.text").Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
        if text.get_rotation() % 90 == 0  # the boxes of others overlap where their letters do not
    ]
    width, height = made.bbox.width, made.bbox.height
    found = [
        f"{text!r} leaves the figure"
        for text, box in boxes
        if min(box.x0, box.y0) < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK
    ]
    for (one, a), (two, b) in combinations(boxes, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK:
            found.append(f"{one!r} overlaps {two!r}")
    return found


def _not_drawn(axes: Any) -> list[Any]:
    """The labels of ticks outside the limits of their axis, and all of them if the axes are hidden."""
    found = []
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        low, high = sorted(limits)
        slack = (high - low) * 1e-6
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not axes.axison or not low - slack <= tick.get_loc() <= high + slack:
                found += [tick.label1, tick.label2]
    return found
