"""The demo's report as a picture: two curves, and for a few images what their patches say beside their true parts."""

import colorsys
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from tembed.demo.evidence import Evidence, Example
from tembed.files import write_file
from tembed.training import Run

TILE, GAP, TEXT = 132, 14, 15
CHART = (640, 300)
INK, PALE, WHITE = (30, 30, 35), (205, 205, 210), (255, 255, 255)
COLOURS = ((120, 120, 130), (200, 80, 30))  # without the block, with it

Colour = tuple[int, int, int]


def draw_report(path: Path, runs: dict[str, Run], evidence: Evidence) -> None:
    """Write the picture."""
    columns = len(evidence.examples)
    width = max(CHART[0], columns * (TILE + GAP) + GAP)
    rows = ("image", "its true parts", "patches: probability of its class (dark 0, bright 1)")
    height = CHART[1] + GAP + len(rows) * (TILE + TEXT + GAP) + 3 * TEXT + _legend_rows(evidence, width) * 20 + GAP
    canvas = Image.new("RGB", (width, height), WHITE)
    draw = ImageDraw.Draw(canvas)
    _curves(draw, runs)
    top = CHART[1] + GAP
    for row, title in enumerate(rows):
        draw.text((GAP, top), title, INK, _font(12))
        top += TEXT
        for column, example in enumerate(evidence.examples):
            tile = (_photograph(example), _parts(example, len(evidence.parts)), _belief(example))[row]
            canvas.paste(tile.resize((TILE, TILE), Image.Resampling.NEAREST), (GAP + column * (TILE + GAP), top))
        top += TILE + GAP
    for column, example in enumerate(evidence.examples):
        right = example.said == example.truth
        colour = (20, 120, 40) if right else (180, 30, 30)
        place = (GAP + column * (TILE + GAP), top - GAP + 4)
        draw.text(place, f"{example.truth}\nhead says {example.said}", colour, _font(12))
    _legend(draw, evidence, top + 2 * TEXT + 4, width)
    content = io.BytesIO()
    canvas.save(content, "PNG")
    write_file(path, content.getvalue())


def _curves(draw: ImageDraw.ImageDraw, runs: dict[str, Run]) -> None:
    """Accuracy over the epochs: validation solid, training thin."""
    left, top, right, bottom = 56, 30, CHART[0] - 150, CHART[1] - 36
    epochs = max(len(run.metrics) for run in runs.values())

    def at(epoch: int, share: float) -> tuple[float, float]:
        return left + (right - left) * (epoch - 1) / max(1, epochs - 1), bottom - (bottom - top) * share

    draw.text((left, 8), "accuracy: validation (thick) and training (thin)", INK, _font(13))
    for tenth in range(0, 11, 2):
        (_, y) = at(1, tenth / 10)
        draw.line((left, y, right, y), PALE)
        draw.text((left - 8, y), f"{10 * tenth} %", INK, _font(11), anchor="rm")
    for epoch in range(1, epochs + 1):
        if epochs <= 12 or epoch % (epochs // 6) == 0:
            draw.text((at(epoch, 0)[0], bottom + 6), str(epoch), INK, _font(11), anchor="ma")
    draw.text(((left + right) / 2, bottom + 20), "epoch", INK, _font(11), anchor="ma")
    for number, ((model, run), colour) in enumerate(zip(runs.items(), COLOURS, strict=True)):
        for key, line in (("accuracy", 1), ("val_accuracy", 3)):
            points = [at(record["epoch"], record[key]) for record in run.metrics]
            draw.line(points, colour, line, joint="curve")
            for x, y in points:
                draw.ellipse((x - line, y - line, x + line, y + line), colour)
        result = run.result
        assert result is not None
        y = top + 44 * number
        draw.line((right + 14, y + 7, right + 34, y + 7), colour, 3)
        label = f"{model}\ntest {100 * result['test_accuracy']:.1f} %"
        draw.text((right + 40, y), label, INK, _font(12))


def _photograph(example: Example) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(example.image.permute(1, 2, 0).numpy()))


def _parts(example: Example, parts: int) -> Image.Image:
    palette = np.array([WHITE, *(_part_colour(n, parts) for n in range(parts))], np.uint8)
    return Image.fromarray(palette[example.part_map.numpy()])


def _belief(example: Example) -> Image.Image:
    return Image.fromarray(_heat(example.belief))


def _heat(share: Tensor) -> np.ndarray:
    """Black through orange to pale yellow."""
    stops = np.array([(15, 10, 30), (130, 30, 60), (230, 110, 30), (255, 250, 190)], float)
    x = share.clamp(0, 1).numpy() * (len(stops) - 1)
    low = np.minimum(x.astype(int), len(stops) - 2)
    mix = (x - low)[..., None]
    return np.rint(stops[low] * (1 - mix) + stops[low + 1] * mix).astype(np.uint8)


def _part_colour(number: int, parts: int) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(number / parts, 0.75 if number % 2 else 0.45, 0.9 if number % 3 else 0.65)
    return round(255 * red), round(255 * green), round(255 * blue)


def _visible(evidence: Evidence) -> list[int]:
    """The parts that some example shows."""
    numbers = {int(n) for example in evidence.examples for n in example.part_map.unique() if n}
    return sorted(n - 1 for n in numbers)


def _legend_rows(evidence: Evidence, width: int) -> int:
    return -(-len(_visible(evidence)) // _legend_columns(width))


def _legend_columns(width: int) -> int:
    return max(1, (width - 2 * GAP) // 120)


def _legend(draw: ImageDraw.ImageDraw, evidence: Evidence, top: int, width: int) -> None:
    for place, number in enumerate(_visible(evidence)):
        row, column = divmod(place, _legend_columns(width))
        x, y = GAP + 120 * column, top + 20 * row
        draw.rectangle((x, y + 2, x + 12, y + 14), _part_colour(number, len(evidence.parts)))
        draw.text((x + 18, y + 1), evidence.parts[number], INK, _font(12))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
