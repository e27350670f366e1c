"""Sprite maps: the patches themselves at their coordinates in a map, with the paper's marks (Fig. 6, appendix B).

A patch has a frame in the colour of its true class, a box in the top left corner in the colour of the class that the
head predicts for the whole image, and a grey box in the middle for the entropy of its own prediction (darker is lower).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.common.fonts import draw_text, text_width
from tembed.lab.analysis.colours import Colour
from tembed.lab.analysis.effective_fields import PatchView
from tembed.lab.analysis.features import Features

SIDE, TILE = 4096, 40
"""Width of the map, and of a patch in it, in pixels."""
FRAME, CORNER, MIDDLE = 3, 11, 8
"""Widths of the frame, the corner box and the middle box of a tile, in pixels."""
INK, PAPER = (25, 25, 30), (255, 255, 255)


def marked(
    picture: UInt8, frame: Colour, corner: Colour, entropy: float, side: int = TILE, *, view: PatchView
) -> Image.Image:
    """A patch as a tile. ``entropy`` is a share of the largest possible entropy."""
    edge, box, grey = (max(1, round(side * width / TILE)) for width in (FRAME, CORNER, MIDDLE))
    tile = Image.new("RGB", (side, side), frame)
    inner = side - 2 * edge
    tile.paste(view.outlined(picture, inner), (edge, edge))
    draw = ImageDraw.Draw(tile)
    draw.rectangle((0, 0, box - 1, box - 1), corner, PAPER)
    shade = round(255 * min(1.0, max(0.0, entropy)))
    start = (side - grey) // 2
    draw.rectangle((start - 1, start - 1, start + grey, start + grey), (shade, shade, shade), PAPER)
    return tile


def cells(coordinates: Floats, side: int) -> tuple[Int64, NDArray[np.float64]]:
    """The cell ``(row, column)`` of each point on a ``side`` x ``side`` grid, and its distance to the cell centre."""
    low, high = coordinates.min(0), coordinates.max(0)
    span = max(float((high - low).max()), np.finfo(np.float32).tiny)
    scaled = (coordinates.astype(np.float64) - (low + high) / 2) / span * (side - 1e-6) + side / 2
    cell = np.clip(np.floor(scaled), 0, side - 1)
    return cell[:, ::-1].astype(np.int64), np.linalg.norm(scaled - cell - 0.5, axis=1)


def thinned(cell: Int64, distance: NDArray[np.float64]) -> Int64:
    """The point nearest to the centre of each cell that has any points, in ascending order."""
    order = np.lexsort((distance, cell[:, 1], cell[:, 0]))
    _, first = np.unique(cell[order], axis=0, return_index=True)
    return np.sort(order[first])


def sprite_map(
    features: Features,
    images: UInt8,
    coordinates: Floats,
    classes: Sequence[str],
    colours: Sequence[Colour],
    view: PatchView,
    *,
    title: str,
    side: int = SIDE,
) -> Image.Image:
    """All patches at their coordinates, thinned to one per cell.

    ``coordinates``: ``(P, 2)``, or ``(P + C + 1, 2)`` with the class vectors, drawn as solid tiles, and zero, drawn as
    a black one.
    """
    assert features.softmax is not None
    assert features.entropy is not None
    count, grid = len(features.softmax), side // TILE
    entropy = features.entropy / np.log(len(classes))
    cell, distance = cells(coordinates, grid)
    sheet = Image.new("RGB", (side, side), PAPER)
    shown = thinned(cell[:count], distance[:count])
    for point in shown:
        image, _, _ = features.position(point)
        tile = marked(
            features.picture(images, point, view.margin),
            colours[features.labels[image]],
            colours[features.head[image]],
            float(entropy[point]),
            view=view,
        )
        row, column = cell[point]
        sheet.paste(tile, (int(column) * TILE, int(row) * TILE))
    draw = ImageDraw.Draw(sheet)
    taken: set[tuple[int, int]] = set()
    for number, wanted in reversed(list(enumerate(cell[count:].tolist()))):  # zero comes first and keeps its cell
        solid, name = ((0, 0, 0), "0") if number == len(classes) else (colours[number], classes[number])
        row, column = free_cell((wanted[0], wanted[1]), taken, grid)
        taken.add((row, column))
        _solid_tile(draw, column * TILE, row * TILE, solid, name)
    note = f"{title}: {len(shown):,} of {count:,} patches, the one nearest to the centre of each cell"
    return _with_legend(sheet, classes, colours, note, view.caption)


def free_cell(wanted: tuple[int, int], taken: set[tuple[int, int]], grid: int) -> tuple[int, int]:
    """The wanted cell, or the nearest free one, so that class vectors in one cell are drawn side by side."""
    free = ((row, column) for row in range(grid) for column in range(grid) if (row, column) not in taken)
    return min(free, key=lambda cell: ((cell[0] - wanted[0]) ** 2 + (cell[1] - wanted[1]) ** 2, cell))


def _solid_tile(draw: ImageDraw.ImageDraw, x: int, y: int, colour: Colour, name: str) -> None:
    """A class vector, or zero."""
    draw.rectangle((x, y, x + TILE - 1, y + TILE - 1), colour, INK, 2)
    while len(name) > 1 and text_width(name, 12) > TILE - 6:
        name = name[:-1]
    ink = PAPER if sum(colour) < 330 else INK
    draw_text(draw, (x + TILE // 2, y + TILE // 2), name, ink, 12, anchor="mm")


def _with_legend(sheet: Image.Image, classes: Sequence[str], colours: Sequence[Colour], *notes: str) -> Image.Image:
    """The map, with its notes, the meaning of the marks and the names of the colours above it."""
    size = max(14, sheet.width // 90)
    line = 2 * size
    widths = [round(text_width(name, size)) + 3 * size for name in classes]
    rows: list[list[int]] = [[]]
    used = 0
    for number, width in enumerate(widths):
        if used + width > sheet.width - 2 * size and rows[-1]:
            rows.append([])
            used = 0
        rows[-1].append(number)
        used += width
    marks = "frame: true class; corner: the head's class for the image; middle: entropy of the patch (dark: low)"
    lines = (*notes, marks)
    top = line * (len(rows) + len(lines))
    whole = Image.new("RGB", (sheet.width, sheet.height + top), PAPER)
    whole.paste(sheet, (0, top))
    draw = ImageDraw.Draw(whole)
    for number, text in enumerate(lines):
        draw_text(draw, (size, line * number + size // 2), text, INK, size)
    for row, numbers in enumerate(rows):
        x, y = size, line * (row + len(lines)) + size // 2
        for number in numbers:
            draw.rectangle((x, y + 2, x + size, y + size + 2), colours[number])
            draw_text(draw, (x + round(1.5 * size), y), classes[number], INK, size)
            x += widths[number]
    return whole
