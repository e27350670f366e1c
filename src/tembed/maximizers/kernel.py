"""Builds and calls ``kernel.c``, the fused CPU form of the exact perturbed maximizer.

The kernel is compiled on first use by the machine's C compiler, for the machine's own processor, and kept in the user's
cache folder. Where that fails `load` warns once and returns None, and the caller takes its eager loop.
"""

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

SOURCE = Path(__file__).with_name("kernel.c")
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
LANES = 16  # as in kernel.c

Nodes = tuple[float, float, int]
"""First and last node, counted from the largest activation, and their number."""


class Plan(ctypes.Structure):
    """The struct ``plan`` of ``kernel.c``: how the pixels lie in memory, and the nodes."""

    _fields_ = (
        ("pixels", ctypes.c_int64),
        ("kernels", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("outer_step", ctypes.c_int64),
        ("kernel_step", ctypes.c_int64),
        ("inner_step", ctypes.c_int64),
        ("mu_outer_step", ctypes.c_int64),
        ("mu_inner_step", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("first", ctypes.c_float),
        ("step", ctypes.c_float),
        ("nodes", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None with a warning where it cannot be had."""
    reasons = []
    # Torch's own OpenMP is already loaded and answers for the undefined symbols: a second one would fight it.
    for openmp in (("-fopenmp",), ()):
        try:
            return ctypes.CDLL(str(_build(FLAGS + openmp)))
        except (OSError, subprocess.SubprocessError) as error:
            stderr = getattr(error, "stderr", None)
            reasons.append((stderr or str(error)).strip().splitlines()[-1])
    warnings.warn(
        f"the fused kernel of the perturbed maximizer could not be built ({reasons[-1]}); the eager loop gives "
        "the same results many times slower. A C compiler (cc, gcc or clang) on the PATH is the way out.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _build(flags: tuple[str, ...]) -> Path:
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler found")
    stamp = hashlib.sha256(SOURCE.read_bytes())
    stamp.update(repr((compiler, flags, platform.machine(), platform.system(), _processor())).encode())
    folder = _cache_folder()
    target = folder / f"perturbed-{stamp.hexdigest()[:16]}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            unlinked, made = os.path.join(aside, "kernel.o"), os.path.join(aside, "kernel.so")
            for step in ([*flags, "-c", str(SOURCE), "-o", unlinked], ["-shared", unlinked, "-o", made]):
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


def empty_result(a: Tensor, dim: int) -> Tensor:
    """An empty tensor like ``a``, in one of the two layouts that the kernel walks: plain, or ``dim`` innermost."""
    if a.movedim(dim, -1).is_contiguous():
        return torch.empty_like(a)
    return torch.empty(a.shape, dtype=a.dtype, device=a.device)


def forward(library: ctypes.CDLL, a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes) -> Tensor:
    """``p`` of P2 for float32 ``a``; ``mu`` has ``a``'s shape with size 1 along ``dim``."""
    p = empty_result(a, dim)
    if a.numel():
        _run(library, a, mu, None, p, None, eps, dim, nodes)
    return p


def backward(
    library: ctypes.CDLL, g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes
) -> tuple[Tensor, Tensor]:
    """``J^T g`` for the activations and for ``mu``."""
    grad = empty_result(a, dim)
    grad_mu = torch.zeros(a.movedim(dim, -1).shape[:-1])
    if a.numel():
        if g.stride() != grad.stride():
            g = torch.empty_like(grad).copy_(g)
        _run(library, a, mu, g, grad, grad_mu, eps, dim, nodes)
    return grad, grad_mu.unsqueeze(dim)


def _run(
    library: ctypes.CDLL,
    a: Tensor,
    mu: Tensor,
    g: Tensor | None,
    out: Tensor,
    grad_mu: Tensor | None,
    eps: float,
    dim: int,
    nodes: Nodes,
) -> None:
    plan, a, mu = _plan(a, mu, eps, dim, nodes)
    scratch = torch.empty(plan.threads * 7 * (plan.kernels + 1) * LANES)
    tensors = (a, mu, g, out, grad_mu, scratch)
    pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    library.tembed_perturbed(ctypes.byref(plan), *pointers)


def _plan(a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes) -> tuple[Plan, Tensor, Tensor]:
    """The walk over the pixels, with ``a`` and ``mu`` in a layout that it fits."""
    kernels = a.shape[dim]
    pixels = a.numel() // kernels
    if a.movedim(dim, -1).is_contiguous():
        inner, steps = 1, (kernels, 1, 0)
    else:
        a = a.contiguous()
        inner = a.shape[dim + 1 :].numel()
        steps = (kernels * inner, inner, 1)
    mu = mu.squeeze(dim)
    if any(mu.stride()):
        mu, mu_steps = mu.contiguous(), (inner, 1)
    else:
        mu_steps = (0, 0)  # one margin for all
    low, high, count = nodes
    blocks = -(-pixels // LANES)
    threads = min(torch.get_num_threads(), 1 + blocks * kernels // 256)  # a thread is worth some work
    step = (high - low) / (count - 1)
    return Plan(pixels, kernels, inner, *steps, *mu_steps, eps, low, step, count, threads), a, mu
