"""Sprite maps: the patches themselves at their places in a map, in the paper's marking (Fig. 6, appendix B).

A patch has a frame in its true class's colour, a box in the left corner in the colour of the class that the head gives
the whole image, and a grey box in the middle for the entropy of its own prediction, darker where that is lower.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tembed.analysis.colours import Colour
from tembed.analysis.features import Features
from tembed.arrays import Floats, Int64, UInt8

SIDE, TILE = 4096, 40
"""Pixels of the map, and of a patch in it."""
FRAME, CORNER, MIDDLE = 3, 11, 8
"""Pixels of a tile of 40 that its frame, its corner box and its middle box take."""
INK, PAPER = (25, 25, 30), (255, 255, 255)


def marked(picture: UInt8, frame: Colour, corner: Colour, unsure: float, side: int = TILE) -> Image.Image:
    """A patch as a tile. ``unsure``: its entropy as a share of the largest possible one."""
    edge, box, grey = (max(1, round(side * part / TILE)) for part in (FRAME, CORNER, MIDDLE))
    tile = Image.new("RGB", (side, side), frame)
    inner = side - 2 * edge
    tile.paste(Image.fromarray(picture).resize((inner, inner), Image.Resampling.BICUBIC), (edge, edge))
    draw = ImageDraw.Draw(tile)
    draw.rectangle((0, 0, box - 1, box - 1), corner, PAPER)
    shade = round(255 * min(1.0, max(0.0, unsure)))
    start = (side - grey) // 2
    draw.rectangle((start - 1, start - 1, start + grey, start + grey), (shade, shade, shade), PAPER)
    return tile


def cells(places: Floats, side: int) -> tuple[Int64, NDArray[np.float64]]:
    """The cell ``(row, column)`` of each place on a grid of ``side`` x ``side``, and its distance to that's middle."""
    low, high = places.min(0), places.max(0)
    span = max(float((high - low).max()), np.finfo(np.float32).tiny)
    scaled = (places.astype(np.float64) - (low + high) / 2) / span * (side - 1e-6) + side / 2
    cell = np.clip(np.floor(scaled), 0, side - 1)
    return cell[:, ::-1].astype(np.int64), np.linalg.norm(scaled - cell - 0.5, axis=1)


def thinned(cell: Int64, off: NDArray[np.float64]) -> Int64:
    """One point for each cell that has any, the nearest to its middle; ascending."""
    order = np.lexsort((off, cell[:, 1], cell[:, 0]))
    _, first = np.unique(cell[order], axis=0, return_index=True)
    return np.sort(order[first])


def sprite_map(
    features: Features,
    images: UInt8,
    places: Floats,
    classes: Sequence[str],
    colours: Sequence[Colour],
    *,
    title: str,
    side: int = SIDE,
) -> Image.Image:
    """All patches at their places, thinned to one a cell.

    ``places``: ``(P, 2)``, or ``(P + C + 1, 2)``; then the class vectors follow as solid tiles, zero as a black one.
    """
    assert features.softmax is not None
    assert features.entropy is not None
    count, grid = len(features.softmax), side // TILE
    unsure = features.entropy / np.log(len(classes))
    cell, off = cells(places, grid)
    sheet = Image.new("RGB", (side, side), PAPER)
    shown = thinned(cell[:count], off[:count])
    for point in shown:
        image, _, _ = features.place(point)
        tile = marked(
            features.picture(images, point),
            colours[features.labels[image]],
            colours[features.head[image]],
            float(unsure[point]),
        )
        row, column = cell[point]
        sheet.paste(tile, (int(column) * TILE, int(row) * TILE))
    draw = ImageDraw.Draw(sheet)
    taken: set[tuple[int, int]] = set()
    for number, at in reversed(list(enumerate(cell[count:].tolist()))):  # zero, the last, keeps its cell
        solid, name = ((0, 0, 0), "0") if number == len(classes) else (colours[number], classes[number])
        row, column = free_cell((at[0], at[1]), taken, grid)
        taken.add((row, column))
        _solid_tile(draw, column * TILE, row * TILE, solid, name)
    note = f"{title}: {len(shown):,} of {count:,} patches, the one nearest to each cell's middle"
    return _with_legend(sheet, classes, colours, note)


def free_cell(at: tuple[int, int], taken: set[tuple[int, int]], grid: int) -> tuple[int, int]:
    """The cell itself, or the nearest one that is not taken: class vectors that share a cell lie side by side."""
    free = ((row, column) for row in range(grid) for column in range(grid) if (row, column) not in taken)
    return min(free, key=lambda cell: ((cell[0] - at[0]) ** 2 + (cell[1] - at[1]) ** 2, cell))


def _solid_tile(draw: ImageDraw.ImageDraw, x: int, y: int, colour: Colour, name: str) -> None:
    """A class vector, or zero."""
    draw.rectangle((x, y, x + TILE - 1, y + TILE - 1), colour, INK, 2)
    font = ImageFont.load_default(12)
    while len(name) > 1 and draw.textlength(name, font) > TILE - 6:
        name = name[:-1]
    draw.text((x + TILE // 2, y + TILE // 2), name, PAPER if sum(colour) < 330 else INK, font, anchor="mm")


def _with_legend(sheet: Image.Image, classes: Sequence[str], colours: Sequence[Colour], note: str) -> Image.Image:
    """The map under its title and the names of the colours."""
    size = max(14, sheet.width // 90)
    font, line = ImageFont.load_default(size), 2 * size
    widths = [round(font.getlength(name)) + 3 * size for name in classes]
    rows: list[list[int]] = [[]]
    used = 0
    for number, width in enumerate(widths):
        if used + width > sheet.width - 2 * size and rows[-1]:
            rows.append([])
            used = 0
        rows[-1].append(number)
        used += width
    top = line * (len(rows) + 2)
    whole = Image.new("RGB", (sheet.width, sheet.height + top), PAPER)
    whole.paste(sheet, (0, top))
    draw = ImageDraw.Draw(whole)
    draw.text((size, size // 2), note, INK, font)
    marks = "frame: true class; corner: the head's class for the image; middle: entropy of the patch (dark: low)"
    draw.text((size, line + size // 2), marks, INK, font)
    for row, members in enumerate(rows):
        x, y = size, line * (row + 2) + size // 2
        for number in members:
            draw.rectangle((x, y + 2, x + size, y + size + 2), colours[number])
            draw.text((x + round(1.5 * size), y), classes[number], INK, font)
            x += widths[number]
    return whole
