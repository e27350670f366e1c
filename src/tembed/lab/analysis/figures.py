"""The figures of the paper's analysis, drawn by matplotlib (Fig. 5, Fig. 7, appendix B)."""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.common.extras import needs
from tembed.common.fonts import drawable, set_fonts, shortened, text_width
from tembed.lab.analysis.colours import Colour, class_colours
from tembed.lab.analysis.effective_fields import PatchView
from tembed.lab.analysis.features import Features
from tembed.lab.analysis.sprites import marked
from tembed.lab.analysis.words import Words

NAMED = 20
"""Maximum number of classes in a legend; more would not fit."""
BARS = 10
"""Maximum number of bars in a chart; with more classes, only the highest scores get one."""
PANEL, CELL = 4.6, 1.65
"""Widths of a map and of a word, in inches."""
NAME = 3.0
"""Maximum of inches for a class name in a legend."""
PATCH, PATCH_FRAME, PATCH_GAP = 96, 6, 8
"""Sizes in the picture of a word, in pixels: a patch, its frame, and the space between two patches."""
UNCERTAIN = 0.2
"""The patches with the highest entropy, this share of all, count as uncertain."""


def figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches, which needs no display."""
    made = needs("matplotlib.figure").Figure(figsize=(width, height), dpi=120, facecolor="white")
    needs("matplotlib.backends.backend_agg").FigureCanvasAgg(made)
    return made


def figure_png(made: Any) -> bytes:
    """A figure as PNG; the same figure gives the same bytes."""
    content = io.BytesIO()
    set_fonts(made)
    made.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def image_png(image: Image.Image) -> bytes:
    """A Pillow picture as PNG."""
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def unit(colours: Sequence[Colour]) -> NDArray[np.float64]:
    """Colours from 0 to 1, for matplotlib: ``(n, 3)``."""
    return np.array(colours) / 255


def literal(texts: Iterable[str]) -> list[str]:
    """Texts that matplotlib draws as they are: it would read ``$x$`` as a formula, and some have no font."""
    return [drawable(text).replace("$", r"\$") for text in texts]


def within(text: str, inches: float, size: float, *, keep_end: bool = False) -> str:
    """A line of text for matplotlib, shortened if it is wider than this many inches at this font size."""
    return literal([shortened(" ".join(text.split()), 72 * inches, size, keep_end=keep_end)])[0]


def mixture(p: Floats, classes: Sequence[str], least: float = 0.1, most: int = 3) -> str:
    """A prediction as text: ``0.5 plane + 0.4 bird``."""
    order = [k for k in np.argsort(-p, kind="stable")[:most] if p[k] >= least]
    return " + ".join(f"{p[k]:.1f} {classes[k]}" for k in order) or "no class above 0.1"


def bar_classes(p: Floats) -> Int64:
    """The classes with a bar: all if they fit, else those with the highest scores."""
    return np.arange(len(p)) if len(p) <= BARS else np.argsort(-p, kind="stable")[:BARS]


# --- Fig. 5


def geometry_figure(
    panels: Sequence[tuple[str, Floats, Int64]],
    classes: Sequence[str],
    colours: Sequence[Colour],
    groups: tuple[Sequence[str], Int64] | None = None,
) -> Any:
    """Fig. 5: maps side by side, coloured by class, and below them by super-class.

    A panel has a title, a map ``(P, 2)`` and the class of each point. ``groups``: their names, and each class's group.
    """
    classes, rows = _legend_names(classes), 2 if groups else 1
    names = [] if groups is None else _legend_names(groups[0])
    legend_width = max(2.0, 0.8 + _widest([*classes[:NAMED], *names], 10))
    width = PANEL * len(panels) + 0.2 + legend_width
    made = figure(width, 4.8 * rows)
    axes = made.subplots(rows, len(panels), squeeze=False)
    for column, (title, coordinates, labels) in enumerate(panels):
        _scatter(axes[0][column], coordinates, unit(colours)[labels])
        axes[0][column].set_title(within(title, PANEL - 0.1, 10), fontsize=10)
        if groups:
            _scatter(axes[1][column], coordinates, unit(_group_colours(len(groups[0])))[groups[1][labels]])
    right = 1 - legend_width / width
    made.subplots_adjust(0.01, 0.02, right, 0.95, wspace=0.03, hspace=0.05)
    _legend(made, classes, colours, right, 0.95)
    if groups:
        _legend(made, names, _group_colours(len(groups[0])), right, 0.46)
    return made


def _scatter(axis: Any, coordinates: Floats, colour: NDArray[np.float64]) -> None:
    order = np.random.default_rng(0).permutation(len(coordinates))  # so that no class covers another
    size = min(12.0, max(0.6, 60000 / len(coordinates) * 0.6))
    axis.scatter(*coordinates[order].T, c=colour[order], s=size, linewidths=0, rasterized=True)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_aspect("equal", adjustable="datalim")


def _group_colours(count: int) -> Sequence[Colour]:
    two: Sequence[Colour] = ((213, 94, 0), (0, 114, 178))
    return two if count == 2 else class_colours(count)


def _legend_names(names: Sequence[str]) -> list[str]:
    return [within(name, NAME, 10) for name in names]


def _widest(names: Sequence[str], size: float) -> float:
    """The width of the widest name, in inches."""
    return max(text_width(name, size) for name in names) / 72


def _legend(made: Any, names: Sequence[str], colours: Sequence[Colour], left: float, top: float) -> None:
    title = None if len(names) <= NAMED else f"{NAMED} of {len(names)}"
    handles = _handles(names[:NAMED], colours[:NAMED], "o", 8)
    made.legend(handles=handles, loc="upper left", bbox_to_anchor=(left, top), frameon=False, fontsize=10, title=title)


def _handles(names: Sequence[str], colours: Sequence[Colour], marker: str, size: int) -> list[Any]:
    """The entries of a legend."""
    lines = needs("matplotlib.lines")
    return [
        lines.Line2D([], [], marker=marker, linestyle="", markersize=size, color=colour, label=name)
        for name, colour in zip(names, unit(colours), strict=True)
    ]


# --- Fig. 7


def words_figure(
    features: Features,
    images: UInt8,
    words: Words,
    which: Int64,
    classes: Sequence[str],
    colours: Sequence[Colour],
    view: PatchView,
    columns: int = 8,
) -> Any:
    """Fig. 7: the patches of each word, below its centre's scores as bars in the classes' colours."""
    names = _legend_names(classes) if len(classes) <= NAMED else []
    across = min(10, max(1, int(CELL * columns / (0.7 + _widest(names, 9))))) if names else 1
    top = 0.85 + 0.21 * -(-len(names) // across)
    rows = -(-len(which) // columns)
    height = 2.65 * rows + top
    made = figure(CELL * columns, height)
    outer = made.add_gridspec(rows, columns, left=0.02, right=0.99, bottom=0.25 / height, top=1 - top / height)
    short = [within(name, CELL - 0.45, 7.5) for name in classes]
    for number, word in enumerate(which):
        row, column = divmod(number, columns)
        cell = outer[row, column].subgridspec(2, 1, height_ratios=[0.5, 1.15], hspace=0.06)
        _word_bars(made.add_subplot(cell[0]), words.centres[word], short, colours)
        axis = made.add_subplot(cell[1])
        axis.imshow(_word_patches(features, images, words.shown[word], colours, view), interpolation="bicubic")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_xlabel(f"{words.sizes[word]:,} patches", fontsize=7, labelpad=2)
        for side in axis.spines.values():
            side.set_visible(False)
    made.text(0.5, 1 - 0.19 / height, view.caption, ha="center", fontsize=10)
    if names:
        handles, anchor = _handles(names, colours, "s", 7), (0.5, 1 - 0.22 / height)
        made.legend(handles=handles, loc="upper center", bbox_to_anchor=anchor, ncols=across, frameon=False, fontsize=9)
    return made


def _word_patches(
    features: Features, images: UInt8, points: Int64, colours: Sequence[Colour], view: PatchView
) -> UInt8:
    """The patches in two columns, each in a frame of its true class's colour."""
    side = PATCH + 2 * PATCH_FRAME
    step, rows = side + PATCH_GAP, -(-len(points) // 2)
    sheet = Image.new("RGB", (2 * step - PATCH_GAP, rows * step - PATCH_GAP), (255, 255, 255))
    for number, point in enumerate(points):
        tile = Image.new("RGB", (side, side), colours[features.labels[features.position(point)[0]]])
        picture = features.picture(images, int(point), view.margin)
        tile.paste(view.outlined(picture, PATCH), (PATCH_FRAME, PATCH_FRAME))
        sheet.paste(tile, (number % 2 * step, number // 2 * step))
    return np.asarray(sheet)


def _word_bars(axis: Any, p: Floats, classes: Sequence[str], colours: Sequence[Colour]) -> None:
    """The scores as bars, with the mixture as the title."""
    shown = bar_classes(p)
    axis.bar(np.arange(len(shown)), p[shown], color=unit(colours)[shown], width=0.85)
    axis.set_ylim(0, 1)
    axis.set_xticks([])
    axis.set_yticks([0, 0.5, 1], ["0", "", "1"], fontsize=6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.set_title(mixture(p, classes, most=2).replace(" + ", "\n"), fontsize=7.5, pad=3)


# --- the legend of the sprite maps (appendix B)


def legend_figure(
    features: Features,
    images: UInt8,
    points: Sequence[tuple[str, int]],
    classes: Sequence[str],
    colours: Sequence[Colour],
    view: PatchView,
) -> Any:
    """Patches with the marks of the sprite maps, beside the predictions that the marks stand for.

    ``points``: titles and points.
    """
    assert features.softmax is not None
    assert features.entropy is not None
    classes = [within(name, 1.35, 9) for name in classes]
    height = 2.9 * len(points) + 0.6
    made = figure(9.5, height)
    axes = made.subplots(len(points), 2, squeeze=False, width_ratios=[1, 2.3])
    for row, (title, point) in enumerate(points):
        image, _, _ = features.position(point)
        truth, head = features.labels[image], features.head[image]
        entropy = float(features.entropy[point]) / np.log(len(classes))
        picture = features.picture(images, point, view.margin)
        tile = marked(picture, colours[truth], colours[head], entropy, side=400, view=view)
        left, right = axes[row]
        left.imshow(tile)
        left.axis("off")
        left.set_title(title, fontsize=10)
        p = features.softmax[point]
        shown = bar_classes(p)
        right.bar(np.arange(len(shown)), p[shown], color=unit(colours)[shown])
        right.set_xticks(np.arange(len(shown)), [classes[k] for k in shown], rotation=35, ha="right", fontsize=9)
        right.set_ylim(0, 1)
        right.set_title(
            f"frame: {classes[truth]} (true)   corner: {classes[head]} (head)   middle: entropy {entropy:.2f}",
            fontsize=9,
        )
    set_fonts(made)  # before the layout, which measures the texts
    made.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
    made.text(0.5, 1 - 0.24 / height, view.caption, ha="center", fontsize=10)
    return made


def legend_points(features: Features, group_of: Int64 | None = None) -> list[tuple[str, int]]:
    """Titles and points of two patches: a certain one, and an uncertain one whose image the head gets wrong.

    The first has the lowest entropy among the patches inside images that patch and head both get right. The second is
    one of the most uncertain fifth of the patches in images that the head gets wrong: the one with the most mass on
    classes of its own super-class or, without super-classes, on its true and its predicted class. If the head gets
    every image right, or every image wrong, the titles say so.
    """
    p, entropy = features.softmax, features.entropy
    assert p is not None
    assert entropy is not None
    truth, head = features.labels[features.image_of], features.head[features.image_of]
    inside = features.inside
    right = inside & (truth == head) & (p.argmax(1) == truth)
    wrong = inside & (truth != head)
    certain = "low entropy, correctly classified" if right.any() else "low entropy (no image is correctly classified)"
    uncertain = "higher entropy, misclassified"
    if not wrong.any():
        wrong, uncertain = inside, "higher entropy (no image is misclassified)"
    if group_of is None:
        related = np.zeros_like(p, bool)
        rows = np.arange(len(p))
        related[rows, truth] = related[rows, head] = True
    else:
        related = group_of[None, :] == group_of[truth][:, None]
        if (same_group := wrong & (group_of[truth] == group_of[head])).any():
            wrong = same_group
    candidates = wrong & (entropy >= np.quantile(entropy[wrong], 1 - UNCERTAIN))
    return [
        (certain, _lowest(entropy, right if right.any() else inside)),
        (uncertain, _lowest(-(p * related).sum(1), candidates)),
    ]


def _lowest(values: NDArray[np.floating], among: NDArray[np.bool_]) -> int:
    points = np.flatnonzero(among)
    return int(points[values[points].argmin()])
