"""Compiles a network with torch.compile, and checks that this machine can do so."""

import os
import shutil
import tempfile
from importlib.util import find_spec

import torch

from tembed.common.errors import TembedError
from tembed.common.files import private_folder
from tembed.lab.training.step_measures import MeasuredLoss


def compile_loss(measure: MeasuredLoss, batch: int, device: torch.device) -> MeasuredLoss:
    """Compile the network with its block and its loss, as one graph, for training on ``batch`` images.

    On CUDA the graph is also recorded as a CUDA graph, which the host launches at once.

    Shapes are fixed, because torch takes many times as long to trace a DenseNet with dynamic ones. So each image side
    is compiled separately, and other batches, such as the last of an epoch, run uncompiled.
    """
    use_private_cache()
    compiled = torch.compile(measure, dynamic=False, mode="reduce-overhead" if device.type == "cuda" else None)
    return lambda images, labels: (compiled if len(labels) == batch else measure)(images, labels)


def use_private_cache() -> None:
    """Let torch keep compiled code in a private folder, unless the user named one.

    Its own is ``torchinductor_USER`` in the temporary folder, where others can put code before the first use. Torch
    sets the variable to it when it is imported.
    """
    torchs = os.path.join(tempfile.gettempdir(), "torchinductor_")
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        if not (given := os.environ.get(variable)) or given.startswith(torchs):
            folder = private_folder(name)
            if folder is None:
                raise TembedError(
                    "`compile` needs a folder that only you can write, and the cache folder is missing or open to "
                    f"others: set XDG_CACHE_HOME or {variable} to such a folder, or leave `compile` out"
                )
            os.environ[variable] = str(folder)


def check_compiler(accelerator: str) -> None:
    """Raise `TembedError` if this machine has no compiler that torch can use."""
    if accelerator == "cuda":
        if find_spec("triton") is None:
            raise TembedError("`compile` on a GPU needs triton, which comes with torch for CUDA; leave `compile` out")
        return
    asked = os.environ.get("CXX")
    if shutil.which(asked or "g++") is None and (asked or shutil.which("clang++") is None):
        raise TembedError(
            f"`compile` needs a C++ compiler, and there is no {asked or 'g++'} on the PATH: install one, name it in "
            "CXX, or leave `compile` out"
        )
    if find_spec("setuptools") is None:
        raise TembedError("`compile` needs setuptools: pip install setuptools, or leave `compile` out")
