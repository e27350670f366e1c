"""Compiled C files on disk. A file is loaded only if this user wrote it and all of it is there.

Kernels are kept in the user's cache folder; where that cannot be trusted, written or executed from, in a private folder
among the temporary files. Each file ends with a checksum of what comes before, which the loader of the system ignores.
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
from typing import Any

fcntl: Any = None
with suppress(ImportError):
    import fcntl

MARK = b"\ntembed kernel, sha256 "
"""Comes before the checksum at the end of a file."""
BUILDING = ".building"
"""Ends the name of the folder that a kernel is compiled in."""
TIMEOUT = 120
"""Seconds that the compiler may take."""


@contextmanager
def compiled(source: Path, flags: tuple[str, ...]) -> Iterator[Path]:
    """The compiled library of a C file, built if it is not there. Load it within the ``with``.

    Raises `OSError` or `subprocess.SubprocessError` if it cannot be built.
    """
    name, places = f"{source.stem}-{_key(source, flags)}.so", _places()
    for folder in places:
        if is_trusted(folder) and is_complete(folder / name):
            yield folder / name
            return
    compiler = _compiler()
    for folder in places:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_trusted(folder) and os.access(folder, os.W_OK):
            yield _build(folder / name, source, compiler, flags)
            return
    with tempfile.TemporaryDirectory(prefix="tembed-") as private:
        if not _is_executable(Path(private)):
            where = " and ".join(str(folder.parent) for folder in places)
            raise OSError(f"{where} are mounted noexec; set XDG_CACHE_HOME to a folder that is not")
        yield _build(Path(private) / name, source, compiler, flags)


def is_trusted(folder: Path) -> bool:
    """Whether only this user (or root) can put files into a folder, and the system runs code from there."""
    try:
        return _is_ours(folder.lstat(), stat.S_ISDIR) and _is_executable(folder)
    except OSError:
        return False


def is_complete(path: Path) -> bool:
    """Whether a library is ours and has its right checksum."""
    try:
        if not _is_ours(path.lstat(), stat.S_ISREG):
            return False
        content, mark, digest = path.read_bytes().rpartition(MARK)
    except OSError:
        return False
    return bool(mark) and digest == _digest(content)


def _is_ours(found: os.stat_result, kind: Any) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return kind(found.st_mode) and found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022


def _is_executable(folder: Path) -> bool:
    return not (hasattr(os, "ST_NOEXEC") and os.statvfs(folder).f_flag & os.ST_NOEXEC)


def _places() -> list[Path]:
    """Folders to keep kernels in, the best first."""
    places = []
    with suppress(RuntimeError):  # there is no home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        places.append(home / "tembed" / "kernels")
    with suppress(OSError):  # there is no folder for temporary files
        user = os.getuid() if hasattr(os, "getuid") else "user"
        places.append(Path(tempfile.gettempdir()) / f"tembed-{user}" / "kernels")
    return places


def _build(target: Path, source: Path, compiler: list[str], flags: tuple[str, ...]) -> Path:
    """Compile into a folder beside the target that only one process uses at a time; the others wait for its result."""
    folder = target.with_suffix(BUILDING)
    for abandoned in target.parent.glob(f"*{BUILDING}"):
        if abandoned != folder:
            _remove_abandoned(abandoned)
    with _alone_in(folder):
        if is_complete(target):  # meanwhile, by another process
            return target
        work = Path(tempfile.mkdtemp(dir=folder))  # a compiler that outlived a killed process may still write elsewhere
        compiled, linked = str(work / "kernel.o"), str(work / "kernel.so")
        for step in ([*flags, "-c", str(source), "-o", compiled], ["-shared", compiled, "-o", linked]):
            subprocess.run(
                [*compiler, *step],
                check=True,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                env=os.environ | {"TMPDIR": str(work)},
            )
        content = Path(linked).read_bytes()
        descriptor = os.open(work / "checked.so", os.O_WRONLY | os.O_CREAT, 0o755)
        with open(descriptor, "wb") as file:
            file.write(content + MARK + _digest(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(work / "checked.so", target)
    return target


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Make a folder that no other process uses meanwhile, and remove it at the end."""
    while (descriptor := _acquired(folder)) is None:
        pass
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _acquired(folder: Path) -> int | None:
    """A folder that this process has locked, open; None if its last user has removed it meanwhile."""
    with suppress(FileExistsError):  # pathlib's exist_ok raises it if the folder is removed at that moment
        os.mkdir(folder, 0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        _lock(descriptor)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _remove_abandoned(folder: Path) -> None:
    """Remove what a killed process left."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    with suppress(BlockingIOError):
        _lock(descriptor, wait=False)
        shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


def _lock(descriptor: int, wait: bool = True) -> None:
    """Lock an open file. On a file system without locks nobody waits: the result is the same."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:
        pass


def _compiler() -> list[str]:
    compiler = shlex.split(os.environ.get("CC", "")) or list(filter(shutil.which, ("cc", "gcc", "clang")))[:1]
    if not compiler:
        raise FileNotFoundError("no C compiler found")
    return compiler


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
