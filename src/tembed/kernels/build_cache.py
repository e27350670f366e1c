"""Compiled C files in a private folder of the user's cache. Each ends with a checksum, which the system ignores.

A file is loaded only if this user wrote it and all of it is there. Where the cache cannot be used, a kernel is compiled
for one process only.
"""

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.files import is_ours, locked, private_folder, write_file

MARK = b"\ntembed kernel, sha256 "
"""Comes before the checksum at the end of a file."""
TIMEOUT = 120
"""Seconds that the compiler may take."""


@contextmanager
def compiled(source: Path, flags: tuple[str, ...]) -> Iterator[Path]:
    """The compiled library of a C file, built if it is not there. Load it within the ``with``.

    Raises `OSError` or `subprocess.SubprocessError` if it cannot be built.
    """
    name, folder = f"{source.stem}-{_key(source, flags)}.so", _cache_folder()
    if folder is not None and (is_complete(folder / name) or _build_cached(folder / name, source, flags)):
        yield folder / name
    else:
        with tempfile.TemporaryDirectory(prefix="tembed-") as private:
            if not _is_executable(Path(private)):
                raise OSError(f"{private} is mounted noexec; set XDG_CACHE_HOME to a folder that is not")
            path = Path(private) / name
            write_file(path, _compile(source, flags, Path(private)))
            yield path


def is_complete(path: Path) -> bool:
    """Whether a library is ours and has its right checksum."""
    try:
        if not is_ours(path, stat.S_ISREG):
            return False
        content, mark, digest = path.read_bytes().rpartition(MARK)
    except OSError:
        return False
    return bool(mark) and digest == _digest(content)


def _cache_folder() -> Path | None:
    """The folder of compiled kernels, if it is private and the system runs what is in it."""
    folder = private_folder("kernels")
    return folder if folder is not None and _is_executable(folder) else None


def _is_executable(folder: Path) -> bool:
    return not (hasattr(os, "ST_NOEXEC") and os.statvfs(folder).f_flag & os.ST_NOEXEC)


def _build_cached(path: Path, source: Path, flags: tuple[str, ...]) -> bool:
    """Compile into the cache, one process at a time. False if it cannot be written."""
    with suppress(TembedError), locked(path.with_suffix(".lock"), waiting=lambda: None):
        if not is_complete(path):  # otherwise another process has built it meanwhile
            with tempfile.TemporaryDirectory(prefix="tembed-") as work:
                content = _compile(source, flags, Path(work))
            write_file(path, content + MARK + _digest(content), mode=0o700)
        return True
    return False


def find_compiler() -> list[str]:
    """The words that start the C compiler: those in ``CC``, else the first one on the PATH; empty without one."""
    return shlex.split(os.environ.get("CC", "")) or list(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))[:1]


def _compile(source: Path, flags: tuple[str, ...], work: Path) -> bytes:
    compiler = find_compiler()
    if not compiler:
        raise FileNotFoundError("no C compiler found")
    compiled, linked = str(work / "kernel.o"), str(work / "kernel.so")
    for step in ([*flags, "-c", str(source), "-o", compiled], ["-shared", compiled, "-o", linked]):
        subprocess.run([*compiler, *step], check=True, capture_output=True, text=True, timeout=TIMEOUT)
    return Path(linked).read_bytes()


def _key(source: Path, flags: tuple[str, ...]) -> str:
    """Everything that the compiled file depends on. A kernel compiled before is used without a compiler."""
    key = hashlib.sha256(source.read_bytes())
    key.update(repr((os.environ.get("CC", ""), flags, platform.machine(), platform.system(), _processor())).encode())
    return key.hexdigest()[:16]


def _processor() -> str:
    """The processor that ``-march=native`` depends on: machines of different kinds may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
