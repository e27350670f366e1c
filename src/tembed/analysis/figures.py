"""The paper's analysis figures as matplotlib figures and their PNG files."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tembed.analysis.colours import Colour, class_colours
from tembed.analysis.features import Features
from tembed.analysis.sprites import marked
from tembed.analysis.words import Words
from tembed.arrays import Floats, Int64, UInt8
from tembed.extras import needs
from tembed.files import write_file

NAMED = 20
"""Classes that a legend lists; more than that would not fit."""
BARS = 10
"""Classes whose scores are drawn; of more the highest."""


def figure(width: float, height: float) -> Any:
    """An empty figure in inches, drawn by no window system."""
    made = needs("matplotlib.figure").Figure(figsize=(width, height), dpi=120, facecolor="white")
    needs("matplotlib.backends.backend_agg").FigureCanvasAgg(made)
    return made


def save_figure(made: Any, path: Path) -> None:
    """Write a figure as PNG; the same figure gives the same bytes."""
    content = io.BytesIO()
    made.savefig(content, format="png", metadata={"Software": None})
    write_file(path, content.getvalue())


def save_image(image: Image.Image, path: Path) -> None:
    """Write a picture as PNG."""
    content = io.BytesIO()
    image.save(content, "PNG")
    write_file(path, content.getvalue())


def unit(colours: Sequence[Colour]) -> NDArray[np.float64]:
    """Colours from 0 to 1, as matplotlib takes them: ``(n, 3)``."""
    return np.array(colours) / 255


def geometry_figure(
    panels: Sequence[tuple[str, Floats, Int64]],
    classes: Sequence[str],
    colours: Sequence[Colour],
    groups: tuple[Sequence[str], Int64] | None = None,
) -> Any:
    """Fig. 5: maps side by side, by class and below by super-class.

    A panel is its title, its map ``(P, 2)`` and each point's class; ``groups``: their names, and each class's group.
    """
    rows = 2 if groups else 1
    longest = max(map(len, [*classes[:NAMED], *(groups[0] if groups else ())]))
    beside = max(2.0, 0.6 + 0.09 * longest)  # inches for the names
    width = 4.6 * len(panels) + 0.2 + beside
    made = figure(width, 4.8 * rows)
    axes = made.subplots(rows, len(panels), squeeze=False)
    for column, (title, places, labels) in enumerate(panels):
        _scatter(axes[0][column], places, unit(colours)[labels])
        axes[0][column].set_title(title, fontsize=12)
        if groups:
            _scatter(axes[1][column], places, unit(_group_colours(len(groups[0])))[groups[1][labels]])
    right = 1 - beside / width
    made.subplots_adjust(0.01, 0.02, right, 0.95, wspace=0.03, hspace=0.05)
    _names(made, classes, colours, right, 0.95)
    if groups:
        _names(made, groups[0], _group_colours(len(groups[0])), right, 0.46)
    return made


def _scatter(axis: Any, places: Floats, colour: NDArray[np.float64]) -> None:
    order = np.random.default_rng(0).permutation(len(places))  # no class on top of another
    size = min(12.0, max(0.6, 60000 / len(places) * 0.6))
    axis.scatter(*places[order].T, c=colour[order], s=size, linewidths=0, rasterized=True)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_aspect("equal", adjustable="datalim")


def _group_colours(count: int) -> Sequence[Colour]:
    two: Sequence[Colour] = ((213, 94, 0), (0, 114, 178))
    return two if count == 2 else class_colours(count)


def _names(made: Any, names: Sequence[str], colours: Sequence[Colour], left: float, top: float) -> None:
    lines = needs("matplotlib.lines")
    handles = [
        lines.Line2D([], [], marker="o", linestyle="", markersize=8, color=colour, label=name)
        for name, colour in list(zip(names, unit(colours), strict=True))[:NAMED]
    ]
    title = None if len(names) <= NAMED else f"{NAMED} of {len(names)}"
    made.legend(handles=handles, loc="upper left", bbox_to_anchor=(left, top), frameon=False, fontsize=10, title=title)


def words_figure(
    features: Features,
    images: UInt8,
    words: Words,
    which: Int64,
    classes: Sequence[str],
    colours: Sequence[Colour],
    columns: int = 8,
) -> Any:
    """Fig. 7: patches of words with their scores drawn on top, as bars in the classes' colours."""
    assert features.softmax is not None
    rows = -(-len(which) // columns)
    height = 2.65 * rows + 0.8
    made = figure(1.65 * columns, height)
    outer = made.add_gridspec(rows, columns, left=0.02, right=0.99, bottom=0.25 / height, top=1 - 0.8 / height)
    for number, word in enumerate(which):
        row, column = divmod(number, columns)
        point = int(words.points[word])
        cell = outer[row, column].subgridspec(2, 1, height_ratios=[0.5, 1.15], hspace=0.06)
        _bars(made.add_subplot(cell[0]), features.softmax[point], classes, colours)
        axis = made.add_subplot(cell[1])
        axis.imshow(features.picture(images, point), interpolation="bicubic")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_xlabel(f"{words.sizes[word]:,} patches", fontsize=7, labelpad=2)
        frame = unit(colours)[features.labels[features.place(point)[0]]]
        for side in axis.spines.values():
            side.set_color(frame)
            side.set_linewidth(3)
    if len(classes) <= NAMED:
        lines = needs("matplotlib.lines")
        handles = [
            lines.Line2D([], [], marker="s", linestyle="", markersize=7, color=colour, label=name)
            for name, colour in zip(classes, unit(colours), strict=True)
        ]
        made.legend(handles=handles, loc="upper center", ncols=min(10, len(classes)), frameon=False, fontsize=9)
    return made


def mixture(p: Floats, classes: Sequence[str], least: float = 0.1, most: int = 3) -> str:
    """A prediction in words: ``0.5 plane + 0.4 bird``."""
    order = [k for k in np.argsort(-p, kind="stable")[:most] if p[k] >= least]
    return " + ".join(f"{p[k]:.1f} {classes[k]}" for k in order) or "no class above 0.1"


def _bars(axis: Any, p: Floats, classes: Sequence[str], colours: Sequence[Colour]) -> None:
    """All scores where they fit, else the highest; the names of those that count above their bars."""
    shown = np.arange(len(p)) if len(p) <= BARS else np.argsort(-p, kind="stable")[:BARS]
    axis.bar(np.arange(len(shown)), p[shown], color=unit(colours)[shown], width=0.85)
    axis.set_ylim(0, 1)
    axis.set_xticks([])
    axis.set_yticks([0, 0.5, 1], ["0", "", "1"], fontsize=6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.set_title(mixture(p, classes, most=2).replace(" + ", "\n"), fontsize=7.5, pad=3)


def legend_figure(
    features: Features,
    images: UInt8,
    points: Sequence[tuple[str, int]],
    classes: Sequence[str],
    colours: Sequence[Colour],
) -> Any:
    """The convention: patches in the marking of the sprite maps beside the predictions behind them (appendix B)."""
    assert features.softmax is not None
    assert features.entropy is not None
    made = figure(9.5, 2.9 * len(points) + 0.3)
    axes = made.subplots(len(points), 2, squeeze=False, width_ratios=[1, 2.3])
    for row, (title, point) in enumerate(points):
        image, _, _ = features.place(point)
        truth, head = features.labels[image], features.head[image]
        unsure = float(features.entropy[point]) / np.log(len(classes))
        tile = marked(features.picture(images, point), colours[truth], colours[head], unsure, side=400)
        left, right = axes[row]
        left.imshow(tile)
        left.axis("off")
        left.set_title(title, fontsize=10)
        p = features.softmax[point]
        shown = np.arange(len(p)) if len(p) <= BARS else np.argsort(-p, kind="stable")[:BARS]
        right.bar(np.arange(len(shown)), p[shown], color=unit(colours)[shown])
        right.set_xticks(np.arange(len(shown)), [classes[k] for k in shown], rotation=35, ha="right", fontsize=9)
        right.set_ylim(0, 1)
        right.set_title(
            f"frame: {classes[truth]} (true)   corner: {classes[head]} (head)   middle: entropy {unsure:.2f}",
            fontsize=9,
        )
    made.tight_layout()
    return made


FEW = 0.2
"""Share of the patches that count as sure, or as unsure."""


def legend_points(features: Features, group_of: Int64 | None = None) -> list[tuple[str, int]]:
    """Two patches: a sure one, rightly classified, and an unsure one whose image the head gets wrong.

    The first has the lowest entropy of all in images that patch and head both get right, and lies inside its image. The
    second, among the least sure fifth of the patches in images that the head gets wrong, has the most mass on
    classes of its own super-class, or without super-classes on its true and its predicted class. Without any
    wrong image the unsure patch is of a right one, and says so.
    """
    p, unsure = features.softmax, features.entropy
    assert p is not None
    assert unsure is not None
    image_of = features.image_of
    truth, head = features.labels[image_of], features.head[image_of]
    within = _inside(features)
    sure = within & (truth == head) & (p.argmax(1) == truth)
    first = _lowest(unsure, sure if sure.any() else within)
    wrong = within & (truth != head)
    title = "higher entropy, wrongly classified"
    if not wrong.any():
        wrong, title = within, "higher entropy (no image is wrongly classified)"
    if group_of is None:
        related = np.zeros_like(p, bool)
        rows = np.arange(len(p))
        related[rows, truth] = related[rows, head] = True
    else:
        related = group_of[None, :] == group_of[truth][:, None]
        if (kin := wrong & (group_of[truth] == group_of[head])).any():
            wrong = kin
    least = wrong & (unsure >= np.quantile(unsure[wrong], 1 - FEW))
    second = _lowest(-(p * related).sum(1), least)
    title_sure = "low entropy, rightly classified" if sure.any() else "low entropy (no image is rightly classified)"
    return [(title_sure, first), (title, second)]


def _inside(features: Features) -> np.ndarray:
    """Points whose patch does not reach beyond its image; all, if none is such: ``(P,)``."""
    good = []
    for cells, window in zip(features.map_size, features.window, strict=True):
        at = np.arange(cells)
        good.append((at >= (window - 1) // 2) & (at + window // 2 < cells))
    inside = np.tile((good[0][:, None] & good[1][None, :]).reshape(-1), len(features.labels))
    return inside if inside.any() else np.ones_like(inside)


def _lowest(values: np.ndarray, among: np.ndarray) -> int:
    places = np.flatnonzero(among)
    return int(places[values[places].argmin()])
