"""An explanation as a picture that reads at a glance, for two classes or a thousand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tembed.common.arrays import UInt8, probability
from tembed.common.extras import needs
from tembed.common.fonts import set_fonts, text_width
from tembed.lab.analysis.colours import Colour, class_colours
from tembed.lab.analysis.explaining import Explanation
from tembed.lab.analysis.features import patch_span
from tembed.lab.analysis.figures import figure, unit, within
from tembed.lab.analysis.heat_map import COLOURS, FADED

HEATS = 3
"""Number of classes with a heat map."""
NAMED = 8
"""Number of classes with a colour and a name; the others are grey."""
OWN_COLOURS = 20
"""Up to this many classes, each has the colour of all other figures; with more, the named ones have the clearest."""
SHOWN = 800
"""Longer side of the photographs in the figure, in pixels."""
WIDTH, LEFT, RIGHT, TITLE, HEADER, LOWER = 15.0, 0.22, 13.98, 0.3, 1.2, 3.9
"""Sizes in inches: figure width, sides of the upper row, heights of a title, of the header and of the lower row."""
GAP = 0.14
"""Inches between two photographs."""
PANORAMA = 0.45
"""Photographs whose height is a smaller share of their width are drawn in two rows."""
REACHES = (0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
"""Ends of the axis of the bars: the first one that no bar exceeds, so that low probabilities can be read."""
NAME = 2.2
"""Inches for a class name beside the bars."""
BOLD = 1.18
"""Width of bold text in terms of plain text."""
GREY: Colour = (176, 176, 176)
ALARM = "#b3261e"


def draw(found: Explanation) -> Any:
    """Above: the photograph, and heat maps on it. Below: the patches by class and by entropy, and the two predictions.

    The head's class comes first everywhere. If head and patches disagree, the header says so.
    """
    note, found = found.note, _resized(found)
    ratio = found.photo.shape[0] / found.photo.shape[1]
    columns = 2 if ratio < PANORAMA else 4
    column = (RIGHT - LEFT - GAP * (columns - 1)) / columns
    tall = min(max(column * ratio, 0.7), 5.6)
    upper = 4 // columns * (TITLE + tall)
    height = HEADER + upper + LOWER + 0.45
    made = figure(WIDTH, height)
    _header(made, found, note, height)
    heats = found.leading[:HEATS]
    places = [
        (LEFT + place % columns * (column + GAP), HEADER + (place // columns + 1) * (TITLE + tall))
        for place in range(1 + len(heats))
    ]
    axes = [made.add_axes((x / WIDTH, 1 - y / height, column / WIDTH, tall / height)) for x, y in places]
    _photograph(axes[0], found)
    middle = 1 - (HEADER + upper) / height
    right = LEFT + min(columns, len(axes)) * (column + GAP)
    bar = made.add_axes((right / WIDTH, middle, 0.12 / WIDTH, (upper - TITLE) / height))
    _heats(axes[1:], bar, found, heats, column)
    named = found.leading[:NAMED]
    colours = _colours(named, len(found.classes))
    row = made.add_gridspec(
        1, 3, left=0.015, right=0.985, top=middle - 0.42 / height, bottom=0.3 / height, width_ratios=[1, 1.08, 2.1]
    )
    _patch_grid(made.add_subplot(row[0]), found, named, colours)
    axis, entropy = made.add_subplot(row[1]), found.entropy / np.log(max(2, len(found.classes)))
    shown = axis.imshow(entropy, vmin=0, vmax=1, cmap="gray", interpolation="nearest")
    made.colorbar(shown, ax=axis, fraction=0.046, pad=0.03)
    _titled(axis, "entropy of each patch (1 is the largest)")
    axis.spines[:].set(visible=True, color="#999999", linewidth=0.8)  # patches of the largest entropy are white
    _predictions(made.add_subplot(row[2].subgridspec(1, 2, width_ratios=[0.36, 1])[1]), found, named, colours)
    set_fonts(made)
    return made


def _resized(found: Explanation) -> Explanation:
    """The same explanation with a photograph of the figure's resolution, so that heat maps on small ones are smooth."""
    height, width = found.photo.shape[:2]
    scale = SHOWN / max(height, width)
    scale = scale if scale < 1 else max(1, int(scale))  # small ones keep their pixels visible
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    across, down = size[0] / width, size[1] / height
    left, top, right, bottom = found.box
    how = Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST
    photo = np.asarray(Image.fromarray(found.photo).resize(size, how))
    return replace(found, photo=photo, box=(left * across, top * down, right * across, bottom * down))


def _colours(named: Sequence[int], classes: int) -> list[Colour]:
    if classes <= OWN_COLOURS:
        return [class_colours(classes)[label] for label in named]
    return list(class_colours(len(named)))


def _header(made: Any, found: Explanation, note: str, height: float) -> None:
    left, whole, p = LEFT / WIDTH, WIDTH - 2 * LEFT, f"  {probability(found.probabilities.max())}"
    head = within(found.prediction, 0.55 * whole, BOLD * 20) + p
    made.text(left, 1 - 0.38 / height, head, fontsize=20, weight="bold")
    rest = whole - (text_width(head, BOLD * 20) + text_width(f", {note}", 11)) / 72 - 0.3
    name = within(found.name, rest, 11, keep_end=True)
    made.text(1 - left, 1 - 0.38 / height, f"{name}, {note}", fontsize=11, ha="right", color="#555555")
    mass, seen = probability(found.patches.max()), within(found.patch_prediction, 0.55 * whole, 13)
    if found.agree:
        text, colour = f"Head and patches agree: the patches give {seen} {mass} on average.", "#333333"
    else:
        text = f"Head and patches disagree: the patches see {seen} ({mass} on average)."
        colour = ALARM
    made.text(left, 1 - 0.72 / height, text, fontsize=13, color=colour)
    made.text(left, 1 - 1.0 / height, within(found.evidence, whole, 10), fontsize=10, color="#555555")


def _titled(axis: Any, title: str) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(False)


def _outline(axis: Any, left: float, top: float, right: float, bottom: float, **style: Any) -> None:
    x, y = [left, right, right, left, left], [top, top, bottom, bottom, top]
    axis.plot(x, y, color="white", linewidth=2.6)
    axis.plot(x, y, color="black", linewidth=1.1, **style)


def _show(axis: Any, photo: UInt8) -> None:
    height, width = photo.shape[:2]
    axis.imshow(photo, extent=(0, width, height, 0), interpolation="antialiased")
    axis.set_xlim(0, width)
    axis.set_ylim(height, 0)


def _photograph(axis: Any, found: Explanation) -> None:
    """The photograph, with what the network saw and one patch outlined."""
    left, top, right, bottom = found.box
    height, width = found.photo.shape[:2]
    y, x = np.mgrid[:height, :width] + 0.5
    seen = ((x > left) & (x < right) & (y > top) & (y < bottom))[..., None]
    faded = np.rint((1 - FADED) * found.photo + FADED * 255).astype(np.uint8)
    _show(axis, np.where(seen, found.photo, faded))
    _outline(axis, *found.box)
    measured = found.effective_field
    if measured is None:
        _patch(axis, found, 0, "--")
        _titled(axis, "what the network saw; dashed: one patch")
        return
    view = measured.view(found.shown)
    _patch(axis, found, view.margin, "--")
    if view.margin != measured.half.margin:
        _patch(axis, found, measured.half.margin, ":")
    half = f"; dotted: {measured.half.inside:.0%}" if view.margin != measured.half.margin else ""
    shown = measured.half if found.shown == "effective" else measured.nominal
    _titled(axis, f"dashed: patch, {shown.inside:.0%} of its score{half}")


def _patch(axis: Any, found: Explanation, margin: int, line: str) -> None:
    """Outline the patch in the middle, with ``margin`` more pixels of the network's input on each side."""
    left, top, right, bottom = found.box
    (y0, y1), (x0, x1) = (
        tuple(length / side * each for each in patch_span(cells // 2, window, side / cells, margin))
        for length, side, cells, window in zip(
            (bottom - top, right - left), found.image.shape, found.entropy.shape, found.window, strict=False
        )
    )
    _outline(axis, left + x0, top + y0, left + x1, top + y1, linestyle=line)


def _heats(axes: Sequence[Any], bar: Any, found: Explanation, shown: Sequence[int], width: float) -> None:
    """Heat maps of the head's class and of the patches' other leading classes, with the scale of all photographs."""
    whose = {int(found.patches.argmax()): " (the patches' class)", shown[0]: " (the head's class)"}
    for axis, label in zip(axes, shown, strict=True):
        _show(axis, found.overlay(found.classes[label]))
        _outline(axis, *found.box)
        suffix = whose.get(label, "")
        _titled(axis, within(found.classes[label], width - text_width(suffix, 11) / 72, 11) + suffix)
    norm = needs("matplotlib.colors").PowerNorm(found.power, 0, found.hottest)
    scale = needs("matplotlib.cm").ScalarMappable(norm, COLOURS)
    extend = "neither" if found.answer_maps is None else "max"
    bar.figure.colorbar(scale, cax=bar, extend=extend).set_label(found.map_name.replace(" (", "\n("), fontsize=9)
    bar.tick_params(labelsize=9)


def _patch_grid(axis: Any, found: Explanation, named: Sequence[int], colours: Sequence[Colour]) -> None:
    """Each cell in the colour of its patch's best class, paler where the patch is less sure."""
    best, p = found.patch_probabilities.argmax(-1), found.patch_probabilities.max(-1)[..., None]
    cells: NDArray[np.float64] = np.broadcast_to(np.array(GREY) / 255, (*best.shape, 3)).copy()
    for label, colour in zip(named, unit(colours), strict=True):
        cells[best == label] = colour
    strength = 0.3 + 0.7 * p
    axis.imshow(1 - strength * (1 - cells), interpolation="nearest")
    for line in range(1, best.shape[0]):
        axis.axhline(line - 0.5, color="white", linewidth=1)
    for line in range(1, best.shape[1]):
        axis.axvline(line - 0.5, color="white", linewidth=1)
    if others := int((~np.isin(best, named)).sum()):
        axis.set_xlabel(f"grey: other classes, best in {others} of {best.size} patches", fontsize=9)
    _titled(axis, "best class of each patch (pale: less sure)")


def _predictions(axis: Any, found: Explanation, named: Sequence[int], colours: Sequence[Colour]) -> None:
    """Bars of the head and of the patches for each named class; the class's colour makes this the legend."""
    head, patches, best = found.probabilities, found.patches, found.patch_probabilities.argmax(-1)
    rows = np.arange(len(named))
    axis.barh(rows - 0.2, head[named], 0.36, color="#404040")
    axis.barh(rows + 0.2, patches[named], 0.36, color=unit(colours), edgecolor="#404040", linewidth=0.6)
    highest = max(float(head[named].max()), float(patches[named].max()))
    reach = next((one for one in REACHES if highest <= one), 1.0)
    axis.scatter(np.full(len(named), -0.025 * reach), rows, marker="s", s=130, color=unit(colours), clip_on=False)
    count = best.size
    for row, label in enumerate(named):
        leads = int((best == label).sum())
        text = f"best in {leads} of {count} patches"
        axis.text(1.6 * reach, row, text, va="center", ha="right", fontsize=9, color="#555555")
    axis.set_yticks(rows, [within(found.classes[label], NAME, 11) for label in named], fontsize=11)
    axis.tick_params(axis="y", length=0, pad=18)
    axis.set_ylim(max(len(named), 4) - 0.4, -0.6)
    axis.set_xlim(0, 1.6 * reach)
    axis.set_xticks(np.linspace(0, reach, 6 if reach == 0.25 else 5))
    axis.set_title("dark: the head; coloured: mean of the patches", fontsize=11, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
