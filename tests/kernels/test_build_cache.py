"""A compiled kernel is used only if this user wrote it and all of it is there."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tembed.kernels import build, fused_bn_relu
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
    (path,) = kernels.glob("*.so")
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
    assert fused_bn_relu.KERNEL.load() is not None
    (path,) = kernels.glob("*.so")
    replace(path, path.read_bytes()[:2000])
    build._load.cache_clear()
    assert fused_bn_relu.KERNEL.load() is not None
    assert len(compilations) == 4
    assert all("-fopenmp" in command for command in compilations if " -c " in command)
    assert list(kernels.glob("*.so")) == [path]
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
    planted.unlink()
    kernels.chmod(mode)
    compilations.clear()
    assert answer() == 42
    assert len(compilations) == 2
    assert not list(kernels.glob("*.so"))
    assert not list(Path(tempfile.gettempdir()).iterdir())


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


def test_a_kernel_in_the_cache_needs_no_compiler(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(kernels)
    monkeypatch.setenv("PATH", "/nowhere")
    assert answer() == 42


def test_without_a_cache_a_kernel_is_compiled_and_nothing_stays(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert answer() == 42
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_without_a_home_a_kernel_is_compiled(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert answer() == 42


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
        assert not list(kernels.glob("*.so"))


def test_if_no_folder_may_execute_code_the_warning_says_so(kernels: Path, tmp_path: Path) -> None:
    with without_execution(tmp_path):
        for folder in (kernels.parents[1], Path(tempfile.gettempdir())):
            folder.mkdir(exist_ok=True)
        with pytest.warns(RuntimeWarning, match=r"mounted noexec; set XDG_CACHE_HOME"):
            assert fused_bn_relu.KERNEL.load() is None


@pytest.mark.parametrize("says", ["echo >&2", "printf '  \\n\\n' >&2", "true", "printf '\\033[31mred\\033[0m' >&2"])
def test_a_compiler_that_says_nothing_gives_a_warning(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\n{says}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.warns(RuntimeWarning, match="could not be built") as caught:
        assert fused_bn_relu.KERNEL.load() is None
    assert re.search(r"[\x00-\x1f]", str(caught[0].message)) is None


@pytest.mark.process
def test_two_processes_compile_a_kernel_once(kernels: Path, tmp_path: Path) -> None:
    counting = tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho $$ >> {tmp_path}/compilations\nexec {COMPILER} "$@"\n')
    counting.chmod(0o755)
    environment = os.environ | {"CC": str(counting)}
    processes = [subprocess.Popen([sys.executable, "-c", OTHER_PROCESS], env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len((tmp_path / "compilations").read_text().split()) == 2  # compiled and linked
    assert len(list(kernels.glob("*.so"))) == 1
