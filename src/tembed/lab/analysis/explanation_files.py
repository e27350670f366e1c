"""Explanations as files."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from PIL import Image

from tembed.common.files import make_folder, write_file
from tembed.lab.analysis.explaining import Explanation
from tembed.lab.analysis.figures import figure_png, image_png


def write_explanations(
    found: Iterable[Explanation], out: Path, *, overlays: bool = False, words: bool = False
) -> Iterator[tuple[Explanation, Path]]:
    """Draw each into ``out`` as ``NAME.png``, or ``NAME-2.png`` if that is taken, and yield it with its file.

    ``overlays``: also write ``NAME-overlay.png``, the photograph under the heat map of the head's class. ``words``:
    also write ``NAME.txt``, the mixture of each patch.
    """
    make_folder(out)
    taken: set[str] = set()
    for one in found:
        stem = Path(one.name).stem
        candidates = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        name = next(candidate for candidate in candidates if not {candidate, f"{candidate}-overlay"} & taken)
        taken |= {name, f"{name}-overlay"} if overlays else {name}
        path = out / f"{name}.png"
        write_file(path, figure_png(one.figure()))
        if overlays:
            write_file(out / f"{name}-overlay.png", image_png(Image.fromarray(one.overlay())))
        if words:
            write_file(out / f"{name}.txt", one.words().encode())
        yield one, path
