"""Packages of the extras, imported on first use."""

import os
from importlib import import_module
from typing import Any

from tembed.common.errors import TembedError

PACKAGES = {
    **dict.fromkeys(("matplotlib", "openTSNE", "sklearn", "scipy", "threadpoolctl"), "lab"),
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
    **dict.fromkeys(("timm", "torchvision", "huggingface_hub"), "timm"),
}
"""The extra of each package."""


os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime is imported, which would look up a host


def needs(module: str) -> Any:
    """The module, or a one-line error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = PACKAGES.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        raise TembedError(f"this needs {error.name}: pip install 'tembed[{extra}]'") from None
