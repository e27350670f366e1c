"""Arrays and JSON as classic scripts, which load from ``file://`` too."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STATIC = Path(__file__).parent / "static"
"""The page's own files."""


def array_script(name: str, array: NDArray[Any]) -> str:
    """An array as a call of the page's ``store``: type, shape, and the gzipped bytes (little-endian) in base64."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64_text(gzip.compress(little.tobytes(), 6, mtime=0))
    return f'tembed.store({json_text(name)}, "{array.dtype.name}", {json_text(list(array.shape))}, "{text}");\n'


def json_text(value: Any) -> str:
    """JSON that is safe inside any script: without ``<``, and with line separators escaped."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
