"""A compiled kernel is used only if this user wrote it and all of it is there."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tembed.kernels import build, conv3x3
from tembed.kernels import build_cache as cache

COMPILER = shutil.which("cc") or shutil.which("gcc")
SOURCE = Path(__file__).with_name("answer.c")
OTHER_PROCESS = f"""
import sys, pathlib
sys.path.insert(0, {str(Path(cache.__file__).parent)!r})
import build_cache
with build_cache.compiled(pathlib.Path({str(SOURCE)!r}), ("-fPIC",)) as path:
    print(path.name)
"""
"""Needs no torch, so it starts quickly."""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of kernels of a user who has compiled none."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    for folder in (home, temporary):
        folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    build._load.cache_clear()
    yield home / "tembed" / "kernels"
    build._load.cache_clear()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that ran, as they run."""
    ran: list[str] = []
    run = subprocess.run

    def counting(command: list[str], **options: object) -> object:
        ran.append(" ".join(command))
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counting)
    return ran


def answer() -> int:
    """Compile and call a small C function."""
    with cache.compiled(SOURCE, ("-fPIC",)) as path:
        return ctypes.CDLL(str(path)).answer()


def stored(kernels: Path) -> Path:
    """The one kernel, after it was compiled."""
    assert answer() == 42
    (path,) = kernels.iterdir()
    return path


def replace(path: Path, content: bytes) -> None:
    """Other content in a new file: this process has mapped the old one."""
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("left", [0.0, 0.3, 0.9, 0.9999])
def test_a_truncated_library_is_compiled_again(kernels: Path, compilations: list[str], left: float) -> None:
    """To load it would end the process with SIGBUS."""
    path = stored(kernels)
    content = path.read_bytes()
    replace(path, content[: int(left * len(content))])
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2
    assert path.read_bytes() == content


def test_a_truncated_kernel_keeps_its_threads(kernels: Path, compilations: list[str]) -> None:
    """It is compiled again with OpenMP, not replaced by the form without."""
    assert conv3x3.KERNEL.load() is not None
    (path,) = kernels.iterdir()
    replace(path, path.read_bytes()[:2000])
    build._load.cache_clear()
    assert conv3x3.KERNEL.load() is not None
    assert len(compilations) == 4
    assert all("-fopenmp" in command for command in compilations if " -c " in command)
    assert list(kernels.iterdir()) == [path]
    assert b"libgomp" not in path.read_bytes()  # torch's runtime serves it; a second one would conflict


def test_a_flipped_bit_is_noticed(kernels: Path, compilations: list[str]) -> None:
    path = stored(kernels)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    replace(path, bytes(content))
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_folder_that_others_can_write_is_not_used(kernels: Path, mode: int, compilations: list[str]) -> None:
    planted = stored(kernels)
    kernels.chmod(mode)
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2
    private = Path(tempfile.gettempdir()) / f"tembed-{os.getuid()}" / "kernels"
    assert [path.name for path in private.iterdir()] == [planted.name]
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_can_write_is_not_loaded(kernels: Path, compilations: list[str]) -> None:
    path = stored(kernels)
    path.chmod(0o777)
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2
    assert path.stat().st_mode & 0o022 == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_another_user_owns_is_not_loaded(kernels: Path, what: str, compilations: list[str]) -> None:
    path = stored(kernels)
    os.chown(kernels if what == "folder" else path, 12345, 12345)
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_is_not_followed(kernels: Path, what: str, tmp_path: Path, compilations: list[str]) -> None:
    path = stored(kernels)
    original = kernels if what == "folder" else path
    original.rename(tmp_path / "elsewhere")
    original.symlink_to(tmp_path / "elsewhere")
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2


def test_kernels_of_a_read_only_cache_are_used_even_without_a_compiler(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(kernels)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert answer() == 42


def test_without_any_folder_a_kernel_is_compiled_and_nothing_stays(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(COMPILER))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert answer() == 42
    assert [path for path in Path(tempfile.gettempdir()).rglob("*") if path.is_file()] == []
    assert not list(kernels.rglob("*.so"))


def test_without_a_home_the_temporary_folder_is_used(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert answer() == 42
    assert len(list(Path(tempfile.gettempdir()).rglob("*.so"))) == 1


@contextmanager
def without_execution(folder: Path) -> Iterator[None]:
    """Mount a file system there that runs no code; where that is not allowed, pretend that it is one."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", folder], capture_output=True)
    with pytest.MonkeyPatch.context() as patched:
        if mounted.returncode:
            real = cache._is_executable
            patched.setattr(cache, "_is_executable", lambda path: not path.is_relative_to(folder) and real(path))
        try:
            yield
        finally:
            if not mounted.returncode:
                subprocess.run(["umount", folder], check=True)


def test_a_cache_without_execution_is_avoided(kernels: Path) -> None:
    with without_execution(kernels.parents[1]):
        assert answer() == 42
        assert len(list(Path(tempfile.gettempdir()).rglob("*.so"))) == 1


def test_if_no_folder_may_execute_code_the_warning_says_so(kernels: Path, tmp_path: Path) -> None:
    with without_execution(tmp_path):
        for folder in (kernels.parents[1], Path(tempfile.gettempdir())):
            folder.mkdir(exist_ok=True)
        with pytest.warns(RuntimeWarning, match=r"mounted noexec; set XDG_CACHE_HOME"):
            assert conv3x3.KERNEL.load() is None


@pytest.mark.parametrize("says", ["echo >&2", "printf '  \\n\\n' >&2", "true", "printf '\\033[31mred\\033[0m' >&2"])
def test_a_compiler_that_says_nothing_gives_a_warning(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\n{says}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.warns(RuntimeWarning, match="could not be built") as caught:
        assert conv3x3.KERNEL.load() is None
    assert re.search(r"[\x00-\x1f]", str(caught[0].message)) is None


@pytest.mark.process
def test_a_process_killed_while_compiling_leaves_nothing_for_long(kernels: Path, tmp_path: Path) -> None:
    """The next one removes what it left, whatever its own compiler is."""
    slow, release = tmp_path / "slow", tmp_path / "release"
    slow.write_text(
        f"#!/bin/sh\necho > $TMPDIR/started\nfor i in $(seq 600); do [ -e {release} ] && exit; sleep 0.1; done\n"
    )
    slow.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", OTHER_PROCESS], env=os.environ | {"CC": str(slow)})
    deadline = time.monotonic() + 60
    while not list(kernels.glob("*/*/started")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    release.touch()
    assert len(list(kernels.glob("*.building"))) == 1
    assert stored(kernels).suffix == ".so"


def test_a_folder_that_another_process_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, calls = os.mkdir, []

    def removed(path: Path, mode: int = 0o777) -> None:
        """The folder is there when it is to be made, and gone right after."""
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(path)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", removed)
    folder = tmp_path / f"kernel{cache.BUILDING}"
    with cache._alone_in(folder):
        assert folder.is_dir()
    assert len(calls) == 2
    assert not folder.exists()


@pytest.mark.process
def test_two_processes_compile_a_kernel_once(kernels: Path, tmp_path: Path) -> None:
    counting = tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho $$ >> {tmp_path}/compilations\nexec {COMPILER} "$@"\n')
    counting.chmod(0o755)
    environment = os.environ | {"CC": str(counting)}
    processes = [subprocess.Popen([sys.executable, "-c", OTHER_PROCESS], env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len((tmp_path / "compilations").read_text().split()) == 2  # compiled and linked
    assert [path.suffix for path in kernels.iterdir()] == [".so"]
