"""Packages of the ``lab`` extra, imported on first use."""

from importlib import import_module
from typing import Any

from tembed.errors import TembedError

PACKAGES = ("matplotlib", "openTSNE", "sklearn", "scipy", "threadpoolctl")


def needs(module: str) -> Any:
    """The module, or a one-line error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in PACKAGES:
            raise
        raise TembedError(f"this needs {error.name}: pip install 'tembed[lab]'") from None
