"""The process that a run trains in: what the run folder records about it, and the settings that training needs."""

import ctypes
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch

import tembed
from tembed import kernels as ops
from tembed.lab.training.hardware import Hardware

HARDWARE = Hardware(accelerator="cpu", devices=1, nodes=1).record()
"""Default for records without hardware info."""
BITS = ("tembed", "commit", "python", "torch", "numpy", "machine", "processor", "threads", "kernels", "gpu", *HARDWARE)
"""Fields that may change the last bits of a result if they change between two starts of a run."""


def environment(hardware: dict[str, Any]) -> dict[str, Any]:
    """The record that the run folder keeps of each start on this hardware."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "tembed": tembed.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": kernels() if hardware["accelerator"] == "cpu" else "torch",
        "gpu": torch.cuda.get_device_name() if hardware["accelerator"] == "cuda" else None,
        **hardware,
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between two starts that can change the last bits."""
    before = HARDWARE | before
    return [f"{key}: {before.get(key)}, now {now[key]}" for key in BITS if before.get(key) != now[key]]


def kernels() -> str:
    """``own`` if all of the package's C kernels work here, ``torch`` if none does, else the list of those that do."""
    available = ops.available()
    working = sorted(name for name in available if available[name])
    if len(working) == len(available):
        return "own"
    return f"own: {', '.join(working)}" if working else "torch"


def commit() -> str | None:
    """The git commit of the package's source, marked if files were edited; None outside a checkout."""
    folder = Path(tembed.__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            ran = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ran.stdout.strip() if ran.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # installed inside another repository
        return None
    head = git("rev-parse", "HEAD")
    return f"{head} (edited)" if head and git("status", "--porcelain", "--", ".") else head


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3)


def keep_freed_memory() -> None:
    """Stop glibc from returning large freed allocations to the system, which zeroes the memory that it gives out.

    A step frees and allocates the same hundreds of megabytes, and zeroing them took a sixth of its time. This applies
    to the whole process, so only commands that train call it. Without glibc it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
