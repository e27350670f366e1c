"""Compiling, caching and loading the kernels."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tembed import kernels as ops
from tembed.kernels import build
from tembed.kernels import fused_bn_relu as bn_relu
from tembed.maximizers import perturbed
from tembed.models.registry import create_model


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No kernel is loaded, and the cache folder is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build._load.cache_clear()
    yield tmp_path / "tembed" / "kernels"
    build._load.cache_clear()


def test_every_kernel_is_available_here() -> None:
    assert ops.available() == {"bn_relu": True, "perturbed": True}


def test_kernels_do_not_depend_on_the_default_type() -> None:
    """A user's own script may set another one. Each kernel makes buffers of its own."""
    networks = [create_model(name).to(memory_format=torch.channels_last) for name in ("rn26-embed", "dn100")]  # type: ignore[call-overload]
    x, a = torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last), torch.randn(2, 5, 4, 4)
    torch.set_default_dtype(torch.float64)
    try:
        for network in networks:
            network(x).logits.sum().backward()
        p = perturbed(a.requires_grad_())
        p.square().sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert p.dtype == torch.float32


def test_available_lists_each_kernel_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    load = build.Kernel.load
    monkeypatch.setattr(build.Kernel, "load", lambda self: None if self is bn_relu.KERNEL else load(self))
    assert ops.available() == {"bn_relu": False, "perturbed": True}


def test_without_a_compiler_there_is_a_warning_and_the_plain_form(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.warns(RuntimeWarning, match="C compiler"):
        p = perturbed(torch.zeros(1, 3))
    monkeypatch.delenv("CC")
    build._load.cache_clear()
    torch.testing.assert_close(p, perturbed(torch.zeros(1, 3)), atol=1e-6, rtol=0)


def test_the_compiler_may_have_arguments(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``CC="ccache gcc"``."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    monkeypatch.setenv("CC", f"env UNUSED='a b' {compiler}")
    assert bn_relu.load() is not None
    assert len(list(fresh.glob("bn_relu-*.so"))) == 1


def test_a_compiled_kernel_is_cached(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bn_relu.load() is not None
    build._load.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert bn_relu.load() is not None


def test_a_kernel_with_a_struct_of_another_size_is_not_used() -> None:
    class Longer(ctypes.Structure):
        _fields_ = (*bn_relu.MapLayout._fields_, ("more", ctypes.c_int64))

    with pytest.warns(RuntimeWarning, match="the struct has 24 bytes in C and 32 in Python"):
        assert build.Kernel("bn_relu", Longer, bn_relu.KERNEL.functions).load() is None
