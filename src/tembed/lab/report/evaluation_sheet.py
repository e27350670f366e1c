"""A contact sheet of the worst images, each beside what its patches see."""

import numpy as np
import torch
from PIL import Image, ImageDraw

from tembed.common.arrays import Int64, UInt8, probability
from tembed.common.fonts import draw_text, shortened, text_width
from tembed.lab.analysis.colours import Colour, class_colours
from tembed.lab.analysis.features import extract_features
from tembed.lab.training.evaluation import Detailed
from tembed.models.registry import model_info

TILE, GAP, LINE, MARGIN, TITLE, COLUMNS = 140, 6, 19, 18, 44, 4
"""Sizes in pixels, and the number of columns."""
INK, QUIET, ALARM, PAPER = "#1a1a1a", "#666666", "#b3261e", "#ffffff"
COLOURED = 10
"""Number of classes with a colour: the most frequent ones in the patches shown. The others are grey."""
GREY: Colour = (176, 176, 176)


def worst_sheet(found: Detailed, which: Int64) -> Image.Image:
    """The images at these positions, with file name, true class, prediction and loss.

    A network with patch scores also has, beside each image, the best class of each patch; paler is less sure.
    """
    scores = patch_scores(found, which)
    coloured, colours = _colours(found, scores)
    wide = TILE if scores is None else 2 * TILE + GAP
    columns = max(1, min(COLUMNS, len(which)))
    rows = -(-len(which) // columns)
    cell = (wide + 3 * MARGIN, TILE + 3 * LINE + MARGIN)
    width = max(2 * MARGIN + columns * cell[0], 760)
    legend = _legend_rows([found.predictions.classes[label] for label in coloured], width)
    top = TITLE + LINE * len(legend) + (GAP if legend else 0)
    sheet = Image.new("RGB", (width, top + rows * cell[1] + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    title = f"the {len(which)} {found.subset} images of {found.data} with the highest loss"
    draw_text(draw, (MARGIN, 14), title, INK, 18)
    _draw_legend(draw, legend, colours)
    for number, position in enumerate(which.tolist()):
        x = MARGIN + number % columns * cell[0]
        y = top + number // columns * cell[1]
        sheet.paste(_tile(_pixels(found, position), Image.Resampling.LANCZOS), (x, y))
        if scores is not None:
            grid = _grid(scores[number], coloured, colours)
            sheet.paste(_tile(grid, Image.Resampling.NEAREST), (x + TILE + GAP, y))
        _caption(draw, found, position, (x, y + TILE + 4), cell[0] - MARGIN)
    return sheet


def patch_scores(found: Detailed, which: Int64) -> np.ndarray | None:
    """The patches' predictions for the images at these positions: ``(n, h, w, C)``; None without patch scores."""
    if not model_info(found.network.description.model).has_scores or not len(which):
        return None
    features = extract_features(found.network, found.images.subset(torch.from_numpy(which)))
    assert features.softmax is not None
    return features.softmax.reshape(len(which), *features.map_size, -1)


def _colours(found: Detailed, scores: np.ndarray | None) -> tuple[list[int], list[Colour]]:
    """The classes that most patches match best, and their colours."""
    if scores is None:
        return [], []
    number = len(found.predictions.classes)
    counts = np.bincount(scores.argmax(-1).ravel(), minlength=number)
    labels = [k for k in np.argsort(-counts, kind="stable").tolist() if counts[k]][:COLOURED]
    if number <= COLOURED:
        return labels, [class_colours(number)[label] for label in labels]
    return labels, list(class_colours(len(labels)))


def _legend_rows(names: list[str], width: int) -> list[list[tuple[int, int, str]]]:
    """Lines of a legend: position, number and name of each class."""
    rows: list[list[tuple[int, int, str]]] = []
    x = width
    for number, name in enumerate(names):
        name = shortened(name, 240, 13)
        needed = round(text_width(name, 13)) + 40
        if x + needed > width - MARGIN:
            rows.append([])
            x = MARGIN
        rows[-1].append((x, number, name))
        x += needed
    return rows


def _draw_legend(draw: ImageDraw.ImageDraw, rows: list[list[tuple[int, int, str]]], colours: list[Colour]) -> None:
    for line, entries in enumerate(rows):
        y = TITLE - 2 + line * LINE
        for x, number, name in entries:
            draw.rectangle((x, y, x + 13, y + 13), colours[number])
            draw_text(draw, (x + 19, y + 7), name, INK, 13, anchor="lm")


def _pixels(found: Detailed, position: int) -> UInt8:
    return found.images.pixels([position])[0]


def _grid(scores: np.ndarray, labels: list[int], colours: list[Colour]) -> UInt8:
    best = scores.argmax(-1)
    cells = np.broadcast_to(np.array(GREY, float), (*best.shape, 3)).copy()
    for label, colour in zip(labels, colours, strict=True):
        cells[best == label] = colour
    return np.rint(255 - (0.3 + 0.7 * scores.max(-1)[..., None]) * (255 - cells)).astype(np.uint8)


def _tile(pixels: UInt8, how: Image.Resampling) -> Image.Image:
    """The picture in the middle of a white square."""
    picture = Image.fromarray(pixels)
    scale = TILE / max(picture.size)
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), how)
    tile = Image.new("RGB", (TILE, TILE), PAPER)
    tile.paste(picture, ((TILE - picture.width) // 2, (TILE - picture.height) // 2))
    return tile


def _caption(draw: ImageDraw.ImageDraw, found: Detailed, position: int, at: tuple[int, int], width: int) -> None:
    one, (x, y) = found.predictions, at
    label, predicted = int(one.labels[position]), int(one.predicted[position])
    draw_text(draw, (x, y), shortened(one.files[position], width, 12, keep_end=True), QUIET, 12)
    draw_text(draw, (x, y + LINE - 2), shortened(f"is {one.classes[label]}", width, 13), INK, 13)
    colour = INK if label == predicted else ALARM
    numbers = f" {probability(one.probabilities[position, predicted])}; loss {one.losses[position]:.1f}"
    head = shortened(f"head: {one.classes[predicted]}", width - text_width(numbers, 13), 13)
    draw_text(draw, (x, y + 2 * LINE - 4), head + numbers, colour, 13)
