"""Writes the folder of the page: the static files, and the data as classic scripts, which load from ``file://`` too."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tembed.analysis.study import Analysis
from tembed.files import explained, write_file
from tembed.page.atlas import make_atlas
from tembed.page.content import MOST, Array, page_content

STATIC = Path(__file__).parent / "static"


def build_page(analysis: Analysis, out: str | Path, most: int = MOST) -> Path:
    """Write the page of an analysis into ``out`` and return the path of its ``index.html``."""
    out = Path(out)
    content = page_content(analysis, most)
    analysis.progress.update("page", 1, 3)
    atlas = make_atlas(content.images)
    analysis.progress.update("page", 2, 3)
    about = content.about | {
        "atlas": {"columns": atlas.columns, "tile": list(atlas.tile), "size": list(atlas.size)},
    }
    picture = f"data:image/{atlas.kind};base64,{_base64(atlas.content)}"
    files = {
        "data/about.js": f"tembed.about = {plain(about)};\n",
        "data/atlas.js": f'tembed.atlas = "{picture}";\n',
        "data/arrays.js": "".join(array_script(name, array) for name, array in content.arrays.items()),
    }
    for path in sorted(STATIC.rglob("*")):
        if path.is_file() and "vendor" not in path.parts:
            write_under(out, path.relative_to(STATIC).as_posix(), path.read_bytes())
    for name, text in files.items():
        write_under(out, name, text.encode())
    analysis.progress.update("page", 3, 3)
    return out / "index.html"


def write_under(out: Path, name: str, content: bytes) -> None:
    """Write a file of the page and the folders above it."""
    with explained(out / name):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
    write_file(out / name, content)


def array_script(name: str, array: Array) -> str:
    """An array as a call of the page's ``store``: type, shape, and the gzipped bytes (little-endian) in base64."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    packed = gzip.compress(little.tobytes(), 6, mtime=0)
    return f'tembed.store({plain(name)}, "{array.dtype.name}", {plain(list(array.shape))}, "{_base64(packed)}");\n'


def plain(value: Any) -> str:
    """JSON that is safe inside any script: no ``<``, and no line separators that end a JavaScript string."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
