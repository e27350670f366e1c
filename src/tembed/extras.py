"""Packages of the optional extras, imported on first use."""

from importlib import import_module
from typing import Any

from tembed.errors import TembedError

EXTRAS = {
    "matplotlib": "lab",
    "openTSNE": "lab",
    "sklearn": "lab",
    "scipy": "lab",
    "threadpoolctl": "lab",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
}
"""The extra of ``pip install 'tembed[EXTRA]'`` that contains each package."""


def needs(module: str) -> Any:
    """The module, or a one-line error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        raise TembedError(f"this needs {error.name}: pip install 'tembed[{extra}]'") from None
