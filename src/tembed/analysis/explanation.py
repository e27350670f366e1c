"""What the block sees in one image, as a picture: scores, mixtures, entropy, prediction."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.analysis.colours import Colour, class_colours
from tembed.analysis.features import extract_features, patch_span
from tembed.analysis.figures import bar_classes, figure, figure_png, literal, mixture, unit
from tembed.arrays import Floats, UInt8
from tembed.data.readers.images import decode_batch
from tembed.data.types import ImageSet
from tembed.errors import TembedError
from tembed.extras import needs
from tembed.files import explained, write_file
from tembed.models import model_info
from tembed.training import Trained, load_trained

LEADING = 4
"""Number of classes with a heat map."""


@dataclass(frozen=True)
class Explanation:
    """The image ``(H, W, 3)`` that the network got, and what it computed. ``note``: how the file was resized.

    ``scores``: ``(h, w, C)``, the patches' class predictions. ``entropy``: ``(h, w)``, in nats. ``probabilities``:
    ``(C,)``, those of the head.
    """

    name: str
    note: str
    classes: tuple[str, ...]
    image: UInt8
    scores: Floats
    entropy: Floats
    probabilities: Floats
    window: tuple[int, int]

    @property
    def prediction(self) -> str:
        return self.classes[int(self.probabilities.argmax())]

    @property
    def leading(self) -> list[int]:
        """The classes with the most mass over all patches."""
        return np.argsort(-self.scores.mean((0, 1)), kind="stable")[:LEADING].tolist()

    def mixture(self, row: int, column: int) -> str:
        """The classes that a patch matches: ``0.5 plane + 0.4 bird``."""
        return mixture(self.scores[row, column], self.classes)

    def figure(self) -> Any:
        """The whole explanation as a matplotlib figure."""
        return draw(self)


def explain(source: str | Path, paths: Sequence[str | Path]) -> Iterator[Explanation]:
    """Explain image files of any size with a run, a weights file or shipped weights.

    An image is resized so that its shorter side fits the network, and cropped to its centre.
    """
    trained = load_trained(source)
    if not model_info(trained.recipe.model).has_scores:
        raise TembedError(
            f"{source} is {trained.recipe.model}, which has no block and so nothing to explain: give a run of an "
            "-embed or -aux network"
        )
    pictures = [read_picture(path, trained.input_size) for path in paths]  # report a broken file before any work
    for path, (pixels, note) in zip(paths, pictures, strict=True):
        yield explain_pixels(trained, pixels, Path(path).name, note)


def read_picture(path: str | Path, size: int) -> tuple[UInt8, str]:
    """The pixels of an image file at a network's input size, and a note on how it was resized."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise TembedError(f"{path} cannot be read ({error.strerror}): check its name") from None
    whole, pixels = decode_batch([content], None)[0], decode_batch([content], size)[0]
    if isinstance(whole, str) or isinstance(pixels, str):
        raise TembedError(f"{path}: {whole if isinstance(whole, str) else pixels}")
    height, width = whole.shape[:2]
    if (height, width) == (size, size):
        return pixels, f"{width}x{height} pixels"
    what = "resized" if height == width else "resized and cropped to its centre"
    return pixels, f"{width}x{height} pixels, {what}: {size}x{size}"


def explain_pixels(trained: Trained, pixels: UInt8, name: str = "image", note: str = "") -> Explanation:
    """Explain one image ``(H, W, 3)`` of the network's input size."""
    batch = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].contiguous(memory_format=torch.channels_last)
    images = ImageSet(batch, torch.zeros(1, dtype=torch.int64), trained.classes, torch.zeros(1, dtype=torch.int64))
    found = extract_features(trained, images)
    assert found.softmax is not None
    assert found.entropy is not None
    return Explanation(
        name=name,
        note=note,
        classes=trained.classes,
        image=np.array(pixels),
        scores=found.softmax.reshape(*found.map_size, -1),
        entropy=found.entropy.reshape(found.map_size),
        probabilities=torch.from_numpy(found.logits[0]).softmax(0).numpy(),
        window=found.window,
    )


def draw(found: Explanation) -> Any:
    """Image, prediction, entropy and heat maps; below them the mixture at each patch."""
    name, *classes = literal([found.name, *found.classes])
    found = replace(found, name=name, classes=tuple(classes))
    colours = class_colours(len(classes))
    made = figure(15, 17.2)
    grid = made.add_gridspec(
        3, 4, height_ratios=[1, 1, 3.1], left=0.03, right=0.97, top=0.945, bottom=0.015, wspace=0.12, hspace=0.16
    )
    made.suptitle(f"{found.name} ({found.note}): {found.prediction} {found.probabilities.max():.2f}", fontsize=16)
    _picture(made.add_subplot(grid[0, 0]), found, "the image, and the extent of one patch")
    # The names of the classes need room on the left.
    _head(made.add_subplot(grid[0, 1:3].subgridspec(1, 2, width_ratios=[0.22, 1])[1]), found, colours)
    axis, entropy = made.add_subplot(grid[0, 3]), found.entropy / np.log(len(found.classes))
    made.colorbar(_map(axis, entropy, "patches: entropy (1 is the largest)", "gray"), ax=axis, fraction=0.046)
    for column, label in enumerate(found.leading):
        axis = made.add_subplot(grid[1, column])
        heat = _map(axis, found.scores[:, :, label], f"patches: {found.classes[label]}", "magma")
        made.colorbar(heat, ax=axis, fraction=0.046)
    _mixtures(made.add_subplot(grid[2, :]), found, colours)
    return made


def _picture(axis: Any, found: Explanation, title: str) -> None:
    axis.imshow(found.image, interpolation="nearest")
    height, width = found.scores.shape[:2]
    rows = patch_span(height // 2, found.window[0], found.image.shape[0] / height)
    columns = patch_span(width // 2, found.window[1], found.image.shape[1] / width)
    x, y = [columns[0], columns[1], columns[1], columns[0], columns[0]], [rows[0], rows[0], rows[1], rows[1], rows[0]]
    axis.plot(np.array(x) - 0.5, np.array(y) - 0.5, color="white", linewidth=2.5)
    axis.plot(np.array(x) - 0.5, np.array(y) - 0.5, color="black", linewidth=1, linestyle="--")
    axis.set_title(title, fontsize=11)
    axis.axis("off")


def _head(axis: Any, found: Explanation, colours: Sequence[Colour]) -> None:
    p = found.probabilities
    shown = bar_classes(p)
    axis.barh(np.arange(len(shown)), p[shown], color=unit(colours)[shown])
    axis.set_yticks(np.arange(len(shown)), [found.classes[k] for k in shown], fontsize=10)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_title(f"the head's prediction for the whole image: {found.prediction}", fontsize=11)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _map(axis: Any, values: Floats, title: str, colours: str) -> Any:
    shown = axis.imshow(values, vmin=0, vmax=1, cmap=colours, interpolation="nearest")
    axis.set_title(title, fontsize=11)
    axis.set_xticks([])
    axis.set_yticks([])
    return shown


def _mixtures(axis: Any, found: Explanation, colours: Sequence[Colour]) -> None:
    """The mixture of each patch as text over the image, in a box in the colour of the leading class."""
    rectangle = needs("matplotlib.patches").Rectangle
    height, width = found.scores.shape[:2]
    axis.imshow(found.image, extent=(0, width, height, 0), interpolation="bicubic", alpha=0.45)
    size = min(9.0, 72 / max(height, width))
    for row in range(height):
        for column in range(width):
            best = int(found.scores[row, column].argmax())
            edge = unit(colours)[best]
            axis.add_patch(
                rectangle((column + 0.03, row + 0.03), 0.94, 0.94, fill=False, edgecolor=edge, linewidth=2.5)
            )
            text = found.mixture(row, column).replace(" + ", "\n")
            axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, linespacing=1.1)
    axis.set_title("the mixture that each patch matches, at the centre of the patch", fontsize=12)
    axis.set_xlim(0, width)
    axis.set_ylim(height, 0)
    axis.set_aspect("equal")
    axis.axis("off")


def write_explanations(found: Iterable[Explanation], out: Path) -> Iterator[tuple[Explanation, Path]]:
    """Draw each into ``out`` as ``NAME.png``, or ``NAME-2.png`` if that is taken, and yield it with its file."""
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for one in found:
        stem = Path(one.name).stem
        candidates = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        name = next(candidate for candidate in candidates if candidate not in taken)
        taken.add(name)
        path = out / f"{name}.png"
        write_file(path, figure_png(one.figure()))
        yield one, path
