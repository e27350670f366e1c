"""The Triton kernel of P2 without a GPU: interpreted, compiled for GPUs, and chosen for tensors that claim to be there.

`interpreted_p2.py` has the comparisons with the C kernel and with float64.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tembed.kernels import exact_p2
from tembed.maximizers import perturbed
from tembed.maximizers.perturbed import PerturbedFunction, integrate_gradient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is published for Linux only")


@pytest.mark.process
def test_the_interpreted_kernel_equals_the_c_kernel_and_float64() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, Path(__file__).with_name("interpreted_p2.py")],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "15 passed" in result.stdout


@pytest.mark.parametrize(("architecture", "gradient", "layout"), [(80, False, "inner"), (90, True, "kernel")])
def test_the_kernel_compiles_for_gpus(
    architecture: int, gradient: bool, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code for an A100 and an H100, by Triton's own assembler. The interpreter accepts more than that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tembed.kernels.exact_p2_triton import integral

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns if it is unset
    types = dict.fromkeys(integral.arg_names, "i32")
    types |= dict.fromkeys(("a", "mu", "g", "out", "grad_mu"), "*bf16")
    types |= dict.fromkeys(("eps", "first", "step"), "fp32")
    constants = {"GRADIENT": gradient, "PIXELS": 64, "KERNELS": 32}
    constants |= {f"{name}_{layout}": 1 for name in ("a", "g", "out")}  # Triton specialises on strides of 1
    types |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(integral, types, {(integral.arg_names.index(name),): value for name, value in constants.items()})
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    assert compiled.asm["cubin"].startswith(b"\x7fELF")
    assert "cvt.rn.bf16" in compiled.asm["ptx"]  # rounded, not truncated as in the interpreter


class Launches(TorchDispatchMode):
    """The names of the operations that a GPU would run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if not (operation.is_view or str(operation).startswith(("prim.", "aten.empty", "aten.new_empty"))):
            self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


@torch.no_grad()
def launches(dtype: torch.dtype) -> tuple[list[str], list[str]]:
    """Of a forward and of a backward pass for a tensor that claims to be on a GPU. Nothing is computed.

    Torch's CPU build has no autograd for such tensors, so backward is called by itself.
    """
    with FakeTensorMode():
        a, g = torch.empty(2, 2, 32, 8, 8, dtype=dtype, device="cuda")
        mu = torch.empty(2, 1, 8, 8, dtype=dtype, device="cuda")
        with Launches() as forward:
            assert perturbed(a).dtype == dtype
        with Launches() as backward:
            context = SimpleNamespace(saved_tensors=(a, mu), eps=1.0, dim=1)
            PerturbedFunction.backward(context, g)
    return forward.names, backward.names


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_launch_in_each_direction(dtype: torch.dtype) -> None:
    forward, backward = launches(dtype)
    assert forward == ["aten.new_full.default", "tembed.perturbed_forward.default"]  # the first fills `mu`
    assert backward == ["tembed.perturbed_backward.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_triton_the_loop_runs(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_p2, "HAS_TRITON", False)
    forward, backward = launches(dtype)
    assert not any("tembed" in name for name in forward + backward)
    assert len(forward) > 200
    assert len(backward) > 200


def test_double_precision_uses_the_loop() -> None:
    with FakeTensorMode():
        assert exact_p2.has_kernel(torch.empty(1, device="cuda"))
        assert not exact_p2.has_kernel(torch.empty(1, device="cuda", dtype=torch.float64))


def test_a_second_derivative_in_half_precision_is_computed_in_single() -> None:
    """The loop takes over from the kernel, and the nodes are too fine for half precision."""
    a, g = torch.randn(2, 3, 8).bfloat16()
    mu = torch.full((3, 1), 0.5, dtype=torch.bfloat16)
    context = SimpleNamespace(saved_tensors=(a, mu), eps=1.0, dim=1)
    grad, grad_mu, *_ = PerturbedFunction.backward(context, g)  # gradients are recorded, as with create_graph=True
    expected = integrate_gradient(g.double(), a.double(), mu.double(), 1.0, 1)
    torch.testing.assert_close(grad.double(), expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(grad_mu.double(), expected[1], atol=1e-5, rtol=0)
