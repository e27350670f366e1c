"""The network's stages through torch.compile, and what that needs of the machine."""

import os
import shutil
from importlib.util import find_spec

import torch

from tembed.errors import TembedError
from tembed.models import Network


def compile_stages(model: Network) -> None:
    """Compile all but the block, which has few of the operations, in place: no name changes.

    Training, evaluation and a new image side may each compile again. The block's window depends on the side, so that
    it would for certain.
    """
    for part in ("features", "classify"):
        setattr(model, part, torch.compile(getattr(model, part), dynamic=True))


def check_compiler(accelerator: str) -> None:
    """`TembedError` if there is nothing to compile with."""
    if accelerator == "cuda":
        if find_spec("triton") is None:
            raise TembedError("--compile on a GPU needs triton, which comes with torch for CUDA; leave --compile out")
        return
    asked = os.environ.get("CXX")
    if shutil.which(asked or "g++") is None and (asked or shutil.which("clang++") is None):
        raise TembedError(
            f"--compile needs a C++ compiler, and there is no {asked or 'g++'} on the PATH: install one, name it in "
            "CXX, or leave --compile out"
        )
    if find_spec("setuptools") is None:
        raise TembedError("--compile needs setuptools: pip install setuptools, or leave --compile out")
