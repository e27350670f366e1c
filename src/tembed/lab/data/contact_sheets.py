"""A contact sheet: some images of every class with its name, to look at before training."""

import io
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tembed.common.arrays import UInt8
from tembed.common.errors import counted
from tembed.common.files import write_file
from tembed.common.fonts import draw_text, shortened, text_width
from tembed.lab.data.getting import open_dataset
from tembed.lab.data.splits import shuffled
from tembed.lab.data.store import Stored

TILE, GAP, LABEL, MARGIN, TITLE, GUTTER, LINE = 64, 4, 160, 16, 40, 32, 24
INK, PAPER, QUIET = "#1a1a1a", "#ffffff", "#666666"
WIDEST = 320  # for names on a sheet of one column
ROWS, COLUMNS = 25, 8  # a column has this many classes, or more if the sheet would need more columns
NAME = 14  # size of a class name in pixels


def contact_sheet(
    name: str, out: str | Path | None = None, each: int | None = None, root: str | Path | None = None
) -> Image.Image:
    """``each`` images of every class (default 12, 6 for more than 25 and 3 for more than 200 classes), always the same.

    If the parts are known, each image has its part map beside it, and the names of the colours are below. The sheet is
    written to ``out`` if given.
    """
    stored = open_dataset(name, root)
    count = len(stored.classes)
    each = each or (12 if count <= ROWS else 6 if count <= ROWS * COLUMNS else 3)
    rows = min(max(ROWS, -(-count // COLUMNS)), count)
    columns = -(-count // rows)
    longest = math.ceil(max(text_width(name, NAME) for name in (*stored.classes, "00,000")))
    label_width = min(WIDEST if columns == 1 else LABEL, 12 + longest)
    strip = label_width + each * (TILE + GAP) + GUTTER
    width = 2 * MARGIN + columns * strip - GUTTER
    parts = stored.manifest["parts"]
    bottom = TITLE + rows * (TILE + GAP) + MARGIN
    per_line = max(1, (max(width, 640) - 2 * MARGIN) // LABEL)
    height = bottom + -(-len(parts) // per_line) * LINE
    sheet = Image.new("RGB", (max(width, 640), height), PAPER)
    draw = ImageDraw.Draw(sheet)
    high, wide = stored.images.shape[1:3]
    classes = "1 class" if count == 1 else f"{count:,} classes"
    title = f"{name}: {counted(len(stored.labels), 'image')} of {wide}x{high} in {classes}"
    draw_text(draw, (MARGIN, 10), title, INK, 18)
    rank = shuffled(len(stored.labels), 0)
    for label, class_name in enumerate(stored.classes):
        x = MARGIN + label // rows * strip
        y = TITLE + label % rows * (TILE + GAP)
        members = np.flatnonzero(stored.labels == label)
        _write_name(draw, (x, y + 14), label_width - 12, class_name)
        draw_text(draw, (x, y + 34), f"{len(members):,}", QUIET, 12)
        chosen = members[np.argsort(rank[members])][:each]
        for position, tile in enumerate(_tiles(stored, chosen)[:each]):
            sheet.paste(tile, (x + label_width + position * (TILE + GAP), y))
    for number, part in enumerate(parts):
        x, y = MARGIN + number % per_line * LABEL, bottom + number // per_line * LINE - 6
        draw.rectangle((x, y, x + 14, y + 14), tuple(_colours(len(parts))[number + 1].tolist()))
        _write_name(draw, (x + 20, y - 2), LABEL - 28, part)
    if out is not None:
        content = io.BytesIO()
        sheet.save(content, "PNG")
        write_file(Path(out), content.getvalue())
    return sheet


def _write_name(draw: ImageDraw.ImageDraw, at: tuple[int, int], width: int, name: str) -> None:
    """Draw the name, shortened with an ellipsis if it is wider than ``width``."""
    draw_text(draw, at, shortened(name, width, NAME), INK, NAME)


def _tiles(stored: Stored, chosen: np.ndarray) -> list[Image.Image]:
    tiles = []
    for index in chosen:
        tiles.append(_tile(stored.images[index], Image.Resampling.LANCZOS))
        if stored.part_map is not None:
            colours = _colours(len(stored.manifest["parts"]))
            tiles.append(_tile(colours[stored.part_map[index]], Image.Resampling.NEAREST))
    return tiles


def _tile(pixels: UInt8, resampling: Image.Resampling) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels)).resize((TILE, TILE), resampling)


def _colours(parts: int) -> UInt8:
    """Light grey for no part, then hues around the colour circle, alternately dark and light."""
    hues = [(index * 255 // max(1, parts), 200, 230 if index % 2 else 150) for index in range(parts)]
    coloured = Image.new("HSV", (parts + 1, 1), (0, 0, 230))
    for index, hue in enumerate(hues):
        coloured.putpixel((index + 1, 0), hue)
    return np.asarray(coloured.convert("RGB"))[0]
