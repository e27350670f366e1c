"""``tembed doctor``: what this machine has of what tembed needs, and the one thing to do next."""

import os
import platform
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tembed.cli.options import read_options
from tembed.common.errors import TembedError, first_line, one_line

OLDEST_TORCH = (2, 10)
"""Below it, loading a checkpoint can corrupt memory even with ``weights_only`` (CVE-2026-24747)."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""The browsers that tests/setup.sh looks for."""
LAB = ("rich", "lightning-fabric", "markdown-it-py", "matplotlib", "openTSNE", "scikit-learn", "scipy")
"""What the commands need besides torch."""
OPTIONAL = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "timm": ("timm",),
    "heic": ("pillow-heif",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "dev": ("captum", "triton", "transformers", "lightning", "pytest"),
}
"""The packages of the other extras."""


@dataclass(frozen=True)
class Doctor:
    """Print what this machine has of what tembed needs, and the one thing to do next.

    A line with ! works, but could be better; a line with x does not work. Exit codes: 0 ready to work; 1 something that
    every user needs is broken.
    """


@dataclass(frozen=True)
class Finding:
    """The result of a check. ``remedy`` is what the user can do about it, if anything; ``broken``: nothing works."""

    text: str
    remedy: str = ""
    broken: bool = False

    @property
    def mark(self) -> str:
        return "x" if self.broken else "!" if self.remedy else " "


def main(arguments: list[str]) -> int:
    read_options(Doctor, "tembed doctor", arguments)
    findings = []
    for name, check in CHECKS.items():
        finding = examine(check)
        print(f"{finding.mark} {name:<10} {one_line(finding.text)}", flush=True)
        findings.append(finding)
    print(f"\nnext: {one_line(next_step(findings))}")
    return 1 if any(finding.broken for finding in findings) else 0


def examine(check: Callable[[], Finding]) -> Finding:
    """The finding of a check, whatever it meets: a check that fails is a finding, too."""
    try:
        return check()
    except Exception as error:
        remedy = "mend that, then run tembed doctor again"
        return Finding(f"{type(error).__name__}: {first_line(error)}", remedy, check in ESSENTIAL)


def next_step(findings: list[Finding]) -> str:
    """The one thing to do: mend what is broken, then what could be better, then work."""
    for remedy in sorted((each for each in findings if each.remedy), key=lambda each: not each.broken):
        return remedy.remedy
    if not Path("runs").is_dir():
        return "tembed demo (trains two small networks and writes a report, in minutes)"
    from tembed.lab.data.store import default_root, stored_names

    names = stored_names(default_root())
    if not names:
        return "tembed data get cifar10, or tembed data import FOLDER --name NAME"
    return f"tembed train rn26-embed --data {'cifar10' if 'cifar10' in names else names[0]} --preset fast"


def python() -> Finding:
    return Finding(f"{platform.python_version()}, in {sys.prefix}, on {platform.platform()}")


def package() -> Finding:
    import tembed
    from tembed.trained.weights_file import shipped

    names = ", ".join(shipped())
    text = f"{tembed.__version__}, {Path(tembed.__file__).parent}; shipped weights: {names or 'none'}"
    return Finding(text, "" if names else "install tembed again: its files are incomplete", not names)


def torch_version() -> Finding:
    try:
        import torch
    except Exception as error:
        return Finding(f"cannot be imported: {first_line(error)}", "pip install --upgrade 'tembed[lab]'", True)
    number = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    oldest = ".".join(map(str, OLDEST_TORCH))
    return Finding(torch.__version__, f"pip install 'torch>={oldest}'" if number < OLDEST_TORCH else "")


def laboratory() -> Finding:
    found = {name: installed(name) for name in LAB}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        return Finding(f"not installed: {', '.join(missing)}", "pip install 'tembed[lab]'", True)
    return Finding(", ".join(f"{name} {number}" for name, number in found.items()))


def packages() -> Finding:
    texts = []
    for extra, names in OPTIONAL.items():
        found = [f"{name} {number}" for name in names if (number := installed(name))]
        missing = [name for name in names if not installed(name)]
        more = f"without {', '.join(missing)}: pip install 'tembed[{extra}]'"
        texts.append(", ".join(found) + (f" ({more})" if missing else ""))
    return Finding("; ".join(text.strip() for text in texts))


def installed(name: str) -> str | None:
    """The version of a package, without importing it; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def compiler() -> Finding:
    from tembed.kernels.build_cache import find_compiler

    words = find_compiler()
    if words and shutil.which(words[0]):
        return Finding(" ".join(words))
    remedy = "install gcc or clang, or name a C compiler in CC; until then, training on a CPU is slower"
    return Finding(f"CC is {' '.join(words)!r}, which is no program" if words else "none on the PATH", remedy)


def kernels() -> Finding:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from tembed.kernels import available

        loaded = available()
    if not all(loaded.values()):
        reason = str(caught[-1].message).partition(";")[0] if caught else "the reason was printed before"
        return Finding(f"not in use: {reason}", "mend the C compiler: the kernels save time on a CPU")
    from tembed.common.files import private_folder

    names = ", ".join(loaded)
    if folder := private_folder("kernels"):
        return Finding(f"{names}: compiled, in {folder}")
    remedy = "set XDG_CACHE_HOME to a folder that only you can write, so that kernels are compiled once"
    return Finding(f"{names}: compiled again by every process, because the cache folder cannot be used", remedy)


def threads() -> Finding:
    import torch

    from tembed.common.cores import cores

    wanted = os.environ.get("OMP_NUM_THREADS")
    why = f" (OMP_NUM_THREADS={wanted})" if wanted else ""
    return Finding(f"{torch.get_num_threads()} of torch{why} on {cores()} usable cores")


def memory() -> Finding:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, KeyError):  # not Linux
        return Finding("not known on this system")
    remedy = "end other programs: training needs about 1 GB" if free < 1e9 else ""
    return Finding(f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free", remedy)


def disk() -> Finding:
    from tembed.lab.data.store import default_root

    places = {"runs": Path.cwd(), "datasets": default_root()}
    free = {what: shutil.disk_usage(existing(folder)).free / 1e9 for what, folder in places.items()}
    text = ", ".join(f"{free[what]:.1f} GB free for {what} ({folder})" for what, folder in places.items())
    full = min(free.values()) < 1
    return Finding(text, "free at least 1 GB, or set TEMBED_DATA to another disk" if full else "", full)


def gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding(", ".join(torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())))
    if torch.backends.mps.is_available():
        return Finding("that of this Mac")
    return Finding("none: the CPU computes")


def browser() -> Finding:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    return Finding(path or "no Chromium on the PATH: any browser shows the page, but its tests need Chromium")


def datasets() -> Finding:
    from tembed.lab.data.store import default_root, open_stored, stored_names

    root = default_root()
    other = "or set TEMBED_DATA to another folder"
    if not existing(root).is_dir():
        return Finding(f"{existing(root)} is not a folder", f"move {existing(root)} away, {other}", True)
    damaged, names = [], stored_names(root)
    for name in names:
        try:
            open_stored(root, name)
        except TembedError as error:
            damaged.append(str(error))
    if damaged:
        return Finding(f"damaged: {damaged[0]}", f"tembed data list ({len(damaged)} of {len(names)} are damaged)")
    if not os.access(existing(root), os.W_OK):
        stored = ", ".join(names) or "nothing"
        return Finding(f"{stored} in {root}, which cannot be written", f"make {root} writable, {other}", not names)
    return Finding(f"{', '.join(names) or 'none yet'}, in {root}")


def features() -> Finding:
    from tembed.lab.training.feature_cache import cache_root, entries

    root = cache_root()
    if not existing(root).is_dir():
        return Finding(f"{existing(root)} is not a folder", f"move {existing(root)} away, or set TEMBED_CACHE")
    found = entries()
    return Finding(f"{len(found)} cached for frozen networks, {sum(e.bytes for e in found) / 1e9:.1f} GB, in {root}")


def existing(path: Path) -> Path:
    """The path, or the nearest of its parents that exists."""
    return next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": python,
    "torch": torch_version,
    "tembed": package,
    "laboratory": laboratory,
    "compiler": compiler,
    "kernels": kernels,
    "threads": threads,
    "memory": memory,
    "disk": disk,
    "GPU": gpu,
    "browser": browser,
    "datasets": datasets,
    "features": features,
    "packages": packages,
}
ESSENTIAL = (torch_version, package, laboratory, disk, datasets)
"""The checks that every user needs to pass."""
