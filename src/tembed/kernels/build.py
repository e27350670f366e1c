"""Loads the C kernels, and checks every argument of every call into them."""

import ctypes
import functools
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tembed.common.errors import first_line, one_line
from tembed.kernels.build_cache import compiled

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A C file of ``csrc``: its struct, which is every function's first argument, and the types of the others.

    The file exports the size of the struct as ``tembed_NAME_struct_bytes``. One file can be compiled in several forms,
    which differ in ``flags``.
    """

    name: str
    struct: type[ctypes.Structure]
    functions: Mapping[str, Sequence[type]]
    flags: tuple[str, ...] = ()

    def load(self) -> ctypes.CDLL | None:
        """The compiled library, or None (with one warning) if it cannot be built; the caller uses its plain form."""
        return _load(self)


@functools.cache
def _load(kernel: Kernel) -> ctypes.CDLL | None:
    source = SOURCES / f"{kernel.name}.c"
    reasons = []
    # Torch has already loaded an OpenMP runtime, which resolves the kernel's symbols. A second runtime would conflict.
    for openmp in (("-fopenmp",), ()):
        try:
            with compiled(source, FLAGS + kernel.flags + openmp) as path:
                return _declare(ctypes.CDLL(str(path)), kernel)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reasons.append(_reason(error))
    warnings.warn(
        f"the fused kernel {source.name} could not be built ({reasons[-1]}); torch's own operations give the same "
        "results more slowly. To use the kernel, put a C compiler (cc, gcc or clang) on the PATH, or name one in CC.",
        RuntimeWarning,
        stacklevel=3,
    )
    return None


def _reason(error: Exception) -> str:
    """The last line that the compiler printed, or else the error itself."""
    said = getattr(error, "stderr", None)
    lines = said.strip().splitlines() if isinstance(said, str) else []
    return one_line(lines[-1] if lines else first_line(error))


def _declare(library: ctypes.CDLL, kernel: Kernel) -> ctypes.CDLL:
    """The library with typed functions. Raises if C and Python disagree about the struct."""
    size = ctypes.c_int64.in_dll(library, f"tembed_{kernel.name}_struct_bytes").value
    if size != ctypes.sizeof(kernel.struct):
        raise OSError(f"the struct has {size} bytes in C and {ctypes.sizeof(kernel.struct)} in Python")
    for name, types in kernel.functions.items():
        function = getattr(library, name)
        function.argtypes = (ctypes.POINTER(kernel.struct), *types)
        function.restype = None
    return library


# Types of a kernel's arguments. ctypes calls `from_param` on every argument of every call and raises ArgumentError
# if it refuses one, so C never reads memory of the wrong type, device or layout.


class Floats:
    """A contiguous float32 tensor on the CPU."""

    dtype = torch.float32

    @classmethod
    def from_param(cls, x: Any) -> ctypes.c_void_p:
        if not isinstance(x, Tensor) or x.dtype != cls.dtype or x.device.type != "cpu" or not cls.has_layout(x):
            found = f"{x.dtype} on {x.device}, strides {x.stride()}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"the kernel expects {cls.__doc__} It got {found}.")
        return ctypes.c_void_p(x.data_ptr())

    @staticmethod
    def has_layout(x: Tensor) -> bool:
        return x.is_contiguous()


class Doubles(Floats):
    """A contiguous float64 tensor on the CPU."""

    dtype = torch.float64


class OptionalFloats(Floats):
    """A contiguous float32 tensor on the CPU, or None."""

    @classmethod
    def from_param(cls, x: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(None) if x is None else super().from_param(x)


class Map(Floats):
    """A channels-last float32 map on the CPU."""

    @staticmethod
    def has_layout(x: Tensor) -> bool:
        return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


class HalfMap(Map):
    """A channels-last bfloat16 map on the CPU."""

    dtype = torch.bfloat16


def is_eager_mode() -> bool:
    """Whether operations run one by one as written: not traced or compiled."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing())
