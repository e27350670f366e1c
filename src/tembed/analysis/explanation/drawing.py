"""An explanation as a picture that reads at a glance, for two classes or a thousand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tembed.analysis.colours import Colour, class_colours
from tembed.analysis.explanation.explaining import Explanation
from tembed.analysis.explanation.heat import COLOURS, FADED, overlay, smooth_map
from tembed.analysis.features import patch_span
from tembed.analysis.figures import figure, literal, unit
from tembed.arrays import UInt8
from tembed.extras import needs
from tembed.reporting.fonts import set_fonts

HEATS = 3
"""Number of classes with a heat map."""
NAMED = 8
"""Number of classes with a colour and a name; the others are grey."""
OWN_COLOURS = 20
"""Up to this many classes, each has the colour of all other figures; with more, the named ones have the clearest."""
SHOWN = 800
"""Longer side of the photographs in the figure, in pixels."""
WIDTH, COLUMN, HEADER, LOWER = 15.0, 3.5, 0.95, 3.9
"""Widths of figure and column, and heights of header and lower row, in inches."""
GREY: Colour = (176, 176, 176)
ALARM = "#b3261e"


def draw(found: Explanation) -> Any:
    """Above: the photograph, and heat maps on it. Below: the patches by class and by entropy, and the two predictions.

    The head's class comes first everywhere. If head and patches disagree, the header says so.
    """
    note, found = found.note, _resized(found)
    name, *classes = literal([found.name, *found.classes])
    found = replace(found, name=name, classes=tuple(_short(each) for each in classes))
    ratio = found.photo.shape[0] / found.photo.shape[1]
    upper = min(max(COLUMN * ratio, 2.0), 5.6)
    height = HEADER + upper + LOWER + 0.75
    made = figure(WIDTH, height)
    _header(made, found, note, height)
    top, middle = 1 - HEADER / height, 1 - (HEADER + 0.3 + upper) / height
    row = made.add_gridspec(1, 4, left=0.015, right=0.945, top=top - 0.3 / height, bottom=middle, wspace=0.04)
    _photograph(made.add_subplot(row[0]), found)
    _heats(made, [made.add_subplot(row[1 + k]) for k in range(min(HEATS, len(classes)))], found)
    named = found.leading[:NAMED]
    colours = _colours(named, len(classes))
    row = made.add_gridspec(
        1, 3, left=0.015, right=0.985, top=middle - 0.42 / height, bottom=0.3 / height, width_ratios=[1, 1.08, 2.1]
    )
    _patch_grid(made.add_subplot(row[0]), found, named, colours)
    axis, entropy = made.add_subplot(row[1]), found.entropy / np.log(max(2, len(classes)))
    shown = axis.imshow(entropy, vmin=0, vmax=1, cmap="gray", interpolation="nearest")
    made.colorbar(shown, ax=axis, fraction=0.046, pad=0.03)
    _titled(axis, "entropy of each patch (1 is the largest)")
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


def _short(name: str, most: int = 30) -> str:
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1].rstrip("\\") + "…"


def _colours(named: Sequence[int], classes: int) -> list[Colour]:
    if classes <= OWN_COLOURS:
        return [class_colours(classes)[label] for label in named]
    return list(class_colours(len(named)))


def _header(made: Any, found: Explanation, note: str, height: float) -> None:
    left, p = 0.015, found.probabilities.max()
    made.text(left, 1 - 0.38 / height, f"{found.prediction}  {p:.2f}", fontsize=20, weight="bold")
    made.text(1 - left, 1 - 0.38 / height, f"{found.name}, {note}", fontsize=11, ha="right", color="#555555")
    mass = found.patches.max()
    if found.agree:
        text, colour = f"Head and patches agree: the patches give {found.prediction} {mass:.2f} on average.", "#333333"
    else:
        text = f"Head and patches disagree: the patches see {found.patch_prediction} ({mass:.2f} on average)."
        colour = ALARM
    made.text(left, 1 - 0.72 / height, text, fontsize=13, color=colour)


def _titled(axis: Any, title: str) -> None:
    axis.set_title(title, fontsize=11 if len(title) < 42 else 9.5)
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
    rows, columns = found.entropy.shape
    tall, wide = (bottom - top) / rows, (right - left) / columns
    (y0, y1), (x0, x1) = (
        patch_span(cells // 2, window, scale)
        for cells, window, scale in zip((rows, columns), found.window, (tall, wide), strict=True)
    )
    _outline(axis, left + x0, top + y0, left + x1, top + y1, linestyle="--")
    _titled(axis, "what the network saw; dashed: one patch")


def _heats(made: Any, axes: Sequence[Any], found: Explanation) -> None:
    """Heat maps of the head's class and of the patches' other leading classes, with one scale."""
    shown = found.leading[: len(axes)]
    height, width = found.photo.shape[:2]
    highest = max(float(found.scores[:, :, shown].max()), 0.01)
    for axis, label in zip(axes, shown, strict=True):
        heat = smooth_map(found.scores[:, :, label], found.window, found.box, (height, width))
        _show(axis, overlay(found.photo, heat, highest))
        _outline(axis, *found.box)
        whose = {int(found.patches.argmax()): " (the patches' class)", shown[0]: " (the head's class)"}
        _titled(axis, found.classes[label] + whose.get(label, ""))
    box = axes[-1].get_position()
    scale = needs("matplotlib.cm").ScalarMappable(needs("matplotlib.colors").Normalize(0, highest), COLOURS)
    bar = made.colorbar(scale, cax=made.add_axes((box.x1 + 0.008, box.y0, 0.008, box.height)))
    bar.set_label("prediction of the patches", fontsize=9)


def _patch_grid(axis: Any, found: Explanation, named: Sequence[int], colours: Sequence[Colour]) -> None:
    """Each cell in the colour of its patch's best class, paler where the patch is less sure."""
    best, p = found.scores.argmax(-1), found.scores.max(-1)[..., None]
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
    head, patches, best = found.probabilities, found.patches, found.scores.argmax(-1)
    rows = np.arange(len(named))
    axis.barh(rows - 0.2, head[named], 0.36, color="#404040")
    axis.barh(rows + 0.2, patches[named], 0.36, color=unit(colours), edgecolor="#404040", linewidth=0.6)
    axis.scatter(np.full(len(named), -0.025), rows, marker="s", s=130, color=unit(colours), clip_on=False)
    count = best.size
    for row, label in enumerate(named):
        leads = int((best == label).sum())
        axis.text(1.6, row, f"best in {leads} of {count} patches", va="center", ha="right", fontsize=9, color="#555555")
    axis.set_yticks(rows, [found.classes[label] for label in named], fontsize=11)
    axis.tick_params(axis="y", length=0, pad=18)
    axis.set_ylim(max(len(named), 4) - 0.4, -0.6)
    axis.set_xlim(0, 1.6)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axis.set_title("dark: the head; coloured: mean of the patches", fontsize=11, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
