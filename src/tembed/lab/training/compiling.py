"""Compiles a network with torch.compile, and checks that this machine can do so."""

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.common.files import private_folder
from tembed.models.network import Network

Stages = Callable[[Tensor], Any]


def compile_stages(model: nn.Module, batch: int) -> None:
    """Compile a network for training on ``batch`` images, in place. State-dict names do not change.

    In a network of this package these are the stages: all but the block. A network from elsewhere has no stages that
    are known here, and is compiled as a whole, with its block.

    Shapes are fixed, because torch takes many times as long to trace a DenseNet with dynamic ones. So each image side
    is compiled separately, and other batches, such as the last of an epoch or those of evaluation, run uncompiled.
    """
    use_private_cache()
    for name in ("features", "classify") if isinstance(model, Network) else ("forward",):
        plain = getattr(model, name)
        setattr(model, name, _for_training(model, batch, plain, torch.compile(plain, dynamic=False)))


def _for_training(model: nn.Module, batch: int, plain: Stages, compiled: Stages) -> Stages:
    return lambda x: (compiled if model.training and len(x) == batch else plain)(x)


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
