"""Where a run takes place: versions, machine, threads and the commit, for the record."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy
import torch

import tembed
from tembed.kernels import conv_weight
from tembed.training.hardware import Hardware

HARDWARE = Hardware(accelerator="cpu", devices=1, nodes=1).record()
"""What a run was on that does not say."""
BITS = ("tembed", "commit", "python", "torch", "numpy", "machine", "processor", "threads", "kernels", "gpu", *HARDWARE)
"""What may change the last bits of a result when it changes between two starts of a run."""


def environment(hardware: dict[str, Any]) -> dict[str, Any]:
    """What the run folder records at each start on this hardware."""
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
        "kernels": "own" if hardware["accelerator"] == "cpu" and conv_weight.load() is not None else "torch",
        "gpu": torch.cuda.get_device_name() if hardware["accelerator"] == "cuda" else None,
        **hardware,
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two starts that can change the last bits."""
    before = HARDWARE | before
    return [f"{key}: {before.get(key)}, now {now[key]}" for key in BITS if before.get(key) != now[key]]


def commit() -> str | None:
    """The git commit of the package's source, with a mark if it has been edited; None outside a checkout."""
    folder = Path(tembed.__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            ran = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ran.stdout.strip() if ran.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # inside somebody else's repository
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
