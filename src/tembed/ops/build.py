"""Compiles a C file on first use, by the machine's C compiler for its own processor, into the user's cache folder."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


@functools.cache
def compiled(source: Path) -> ctypes.CDLL | None:
    """The library of a C file, or None with a warning where it cannot be had: the caller takes its plain form."""
    reasons = []
    # Torch's own OpenMP is already loaded and answers for the undefined symbols: a second one would fight it.
    for openmp in (("-fopenmp",), ()):
        try:
            return ctypes.CDLL(str(_build(source, FLAGS + openmp)))
        except (OSError, subprocess.SubprocessError) as error:
            stderr = getattr(error, "stderr", None)
            reasons.append((stderr or str(error)).strip().splitlines()[-1])
    warnings.warn(
        f"the fused kernel {source.name} could not be built ({reasons[-1]}); torch's own operations give the same "
        "results more slowly. A C compiler (cc, gcc or clang) on the PATH is the way out.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def pointers(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    """Where the numbers of each tensor lie, for a call of the library."""
    return [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]


def walkable(x: Tensor) -> bool:
    """Whether a map is as the kernels take them: on the CPU, in float32, its channels innermost."""
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and x.ndim == 4
    return plain and x.is_contiguous(memory_format=torch.channels_last)


def pixel_step(x: Tensor) -> int:
    """Numbers from a pixel to the next: more than the channels in a slice of them."""
    return x.stride(3) if x.shape[3] > 1 else x.stride(2) if x.shape[2] > 1 else x.stride(0)


def _build(source: Path, flags: tuple[str, ...]) -> Path:
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler found")
    stamp = hashlib.sha256(source.read_bytes())
    stamp.update(repr((compiler, flags, platform.machine(), platform.system(), _processor())).encode())
    folder = _cache_folder()
    target = folder / f"{source.stem}-{stamp.hexdigest()[:16]}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            unlinked, made = os.path.join(aside, "kernel.o"), os.path.join(aside, "kernel.so")
            for step in ([*flags, "-c", str(source), "-o", unlinked], ["-shared", unlinked, "-o", made]):
                subprocess.run([compiler, *step], check=True, capture_output=True, text=True, timeout=120)
            os.replace(made, target)
    return target


def _processor() -> str:
    """What ``-march=native`` depends on, for caches shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tembed"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK):
            return home
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="tembed-"))
