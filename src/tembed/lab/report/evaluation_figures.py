"""The confusion matrix and the calibration curve."""

from typing import Any

import numpy as np

from tembed.common.extras import needs
from tembed.common.fonts import text_width
from tembed.lab.analysis.figures import figure, within
from tembed.lab.training.prediction_measures import BINS, Predictions

COUNTED = 25
"""Up to this many classes, the cells show their counts."""
NAMED = 120
"""Up to this many classes, rows and columns have names."""
LONGEST = 2.8
"""Maximum of inches for a class name beside the matrix."""


def confusion_figure(found: Predictions) -> Any:
    """Rows: true classes. Columns: predictions. Colours: the share of the row, on a scale that shows rare mistakes."""
    counts = found.confusion
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    number = len(found.classes)
    cell = 0.5 if number <= COUNTED else 9 / number
    size = min(10, 72 * cell * 0.8)
    names = [within(name, LONGEST, size) for name in found.classes] if number <= NAMED else []
    margin = 0.6 + 1.06 * max((text_width(name, size) for name in names), default=0) / 72  # small text is set wider
    side = max(2.5, cell * number)
    made = figure(margin + side + 1.3, margin + side + 0.6)
    width, height = made.get_size_inches()
    axis = made.add_axes((margin / width, margin / height, side / width, side / height))
    norm = needs("matplotlib.colors").PowerNorm(0.5, 0, 1)
    shown = axis.imshow(shares, cmap="Blues", norm=norm, interpolation="nearest")
    if number <= COUNTED:
        for row, column in zip(*np.nonzero(counts), strict=True):
            dark = shares[row, column] > 0.3
            axis.text(
                column,
                row,
                f"{counts[row, column]:,}",
                ha="center",
                va="center",
                fontsize=9 if counts.max() < 1000 else 7.5,
                color="white" if dark else "#222222",
            )
    if number <= NAMED:
        axis.set_xticks(range(number), names, rotation=90, fontsize=size)
        axis.set_yticks(range(number), names, fontsize=size)
    else:
        axis.set_xticks([])
        axis.set_yticks([])
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    axis.set_title(f"confusions of {len(found):,} images", fontsize=12)
    bar = made.add_axes(((margin + side + 0.2) / width, margin / height, 0.16 / width, side / height))
    made.colorbar(shown, cax=bar, ticks=[0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]).set_label("share of the true class")
    return made


def calibration_figure(found: Predictions) -> Any:
    """Accuracy over confidence, and how many images have each confidence."""
    made = figure(5.2, 5.4)
    above, below = made.subplots(2, 1, height_ratios=[3, 1], sharex=True)
    bins = [one for one in found.calibration() if one.images]
    left = np.array([one.low for one in bins])
    above.plot([0, 1], [0, 1], color="#888888", linewidth=1, linestyle="--")
    above.bar(left, [one.accuracy for one in bins], 1 / BINS, align="edge", color="#0072b2", edgecolor="white")
    above.plot([one.confidence for one in bins], [one.accuracy for one in bins], "o", color="#d55e00", markersize=4)
    above.set_ylim(0, 1)
    above.set_ylabel("accuracy")
    sure = "too sure" if found.overconfidence > 0 else "too cautious"
    above.set_title(
        f"calibration error {100 * found.calibration_error:.1f} %; "
        f"{sure} by {100 * abs(found.overconfidence):.1f} points on average",
        fontsize=11,
    )
    below.bar(left, [one.images for one in bins], 1 / BINS, align="edge", color="#888888", edgecolor="white")
    below.set_ylabel("images")
    below.set_xlabel("confidence: the head's highest probability")
    below.set_xlim(0, 1)
    for axis in (above, below):
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    made.tight_layout()
    return made
