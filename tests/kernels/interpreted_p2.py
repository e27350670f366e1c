"""The Triton kernel of P2 in Triton's interpreter, on the CPU: against the C kernel and the integral in float64.

    TRITON_INTERPRET=1 pytest tests/kernels/interpreted_p2.py

Triton reads this variable when it is imported, so the suite runs this file in a process of its own
(`test_exact_p2_triton.py`).
"""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime.interpreter import ReduceOps

from tembed.kernels import exact_p2, exact_p2_triton
from tembed.maximizers.margin import align_margin

module = sys.modules["tembed.maximizers.perturbed"]  # the package has a function of the same name
# So Triton 3.6's interpreter reads the bound of a loop, an array of one number; later ones do not.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.runtime.interpreter"
)
Results = tuple[Tensor, Tensor, Tensor]  # p, and the gradients for the activations and the margin


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's product: the interpreter multiplies numbers one by one, in 0.1 ms each."""
    if "plain_product" in request.fixturenames:
        monkeypatch.setattr(exact_p2_triton, "TILE", 8)  # more than one program, too
        return
    reduce = ReduceOps.apply_impl

    def apply(self: ReduceOps, inputs: tuple) -> object:
        if self.combine_fn is not exact_p2_triton._product:
            return reduce(self, inputs)
        product = np.prod(inputs[0].handle.data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(product, inputs[0].dtype)

    monkeypatch.setattr(ReduceOps, "apply_impl", apply)


@pytest.fixture
def plain_product() -> None:
    """Leave the interpreter's own reduction in place."""


def by_triton(a: Tensor, mu: Tensor, g: Tensor, eps: float, dim: int) -> Results:
    nodes = module.quadrature(a.shape[dim], a.dtype)
    p, grad = exact_p2._empty_result(a, dim), exact_p2._empty_result(a, dim)
    grad_mu = a.new_empty(mu.shape)
    exact_p2_triton.run(a, mu, None, p, None, eps, dim, nodes)
    exact_p2_triton.run(a, mu, g, grad, grad_mu, eps, dim, nodes)
    return p, grad, grad_mu


def by_c(a: Tensor, mu: Tensor, g: Tensor, eps: float, dim: int) -> Results:
    nodes = module.quadrature(a.shape[dim], a.dtype)
    p = exact_p2.perturbed_forward(a, mu, eps, dim, *nodes)
    return p, *exact_p2.perturbed_backward(g, a, mu, eps, dim, *nodes)


def in_float64(a: Tensor, mu: Tensor, g: Tensor, eps: float, dim: int) -> Results:
    a, mu, g = a.double(), mu.double(), g.double()
    return module.integrate(a, mu, eps, dim), *module.integrate_gradient(g, a, mu, eps, dim)


def compare(a: Tensor, mu: float | Tensor, g: Tensor, eps: float = 1.0, dim: int = 1, bound: float = 1e-6) -> None:
    """All three forms agree, in the gradients within twice the bound. Results have the layout of the C kernel's."""
    _, margin, dim = align_margin(a, mu, eps, dim)
    ours, c, exact = (form(a, margin, g, eps, dim) for form in (by_triton, by_c, in_float64))
    for value, other, reference, limit in zip(ours, c, exact, (bound, 2 * eps * bound, 2 * eps * bound), strict=True):
        assert value.stride() == other.stride()
        assert (value - other).abs().max() <= limit
        assert (value - reference).abs().max() <= limit


@pytest.mark.parametrize("kernels", [1, 32, 1000])
def test_any_number_of_kernels(kernels: int) -> None:
    generator = torch.Generator().manual_seed(kernels)
    a, g = 2 * torch.randn(2, 3, kernels, generator=generator)
    compare(a, 2.5, g)
    a[0] = 2.5 + 1e-3 * a[0]  # near-ties, with the margin too
    a[1], a[1, 0] = 2.4, 5.5  # one leader above ties
    compare(a, 2.5, g.sign(), bound=1e-5)  # the error of the trapezoid rule, which all forms share


@pytest.mark.parametrize(("layout", "eps"), [(torch.contiguous_format, 0.3), (torch.channels_last, 4.0)])
def test_both_layouts_and_one_margin_per_pixel(layout: torch.memory_format, eps: float) -> None:
    generator = torch.Generator().manual_seed(1)
    a, g = torch.randn(2, 2, 7, 3, 5, generator=generator)
    mu = torch.randn(2, 1, 3, 5, generator=generator)
    a = a.contiguous(memory_format=layout)
    for given in (g, g.contiguous(memory_format=torch.channels_last), torch.ones(()).expand_as(g)):
        compare(a, mu, given, eps)
    compare(a, mu[:, :, :, :1], g, eps)


@pytest.mark.parametrize("dim", [0, 2, 3])
def test_any_axis_and_slices(dim: int) -> None:
    a, g = torch.randn(2, 4, 6, 3, 4)[..., ::2]
    compare(a, 0.5, g, dim=dim)


def test_the_interpreters_own_product(plain_product: None) -> None:
    compare(torch.randn(3, 6), 0.5, torch.randn(3, 6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_in_and_out(dtype: torch.dtype) -> None:
    a, g = torch.randn(2, 3, 12, 4).to(dtype)
    _, mu, dim = align_margin(a, 0.5, 1.0, 1)
    half = by_triton(a, mu, g, 1.0, dim)
    single = by_triton(a.float(), mu.float(), g.float(), 1.0, dim)
    for value, reference in zip(half, single, strict=True):
        assert value.dtype == dtype
        # The interpreter truncates to bfloat16. A GPU rounds (`test_exact_p2_triton.py`).
        ulp = 2**-7 if dtype == torch.bfloat16 else 2**-11
        torch.testing.assert_close(value.float(), reference, rtol=ulp, atol=1e-7)


@pytest.mark.filterwarnings("ignore:(invalid value|All-NaN):RuntimeWarning")
@pytest.mark.parametrize("kernels", [1, 5])
def test_nan_and_infinities_are_those_of_the_c_kernel(kernels: int) -> None:
    a = torch.randn(8, kernels)
    a[1, 0], a[2, 0], a[3, 0], a[4] = torch.nan, torch.inf, -torch.inf, -torch.inf
    mu = torch.full((8, 1), 0.5)
    mu[5], mu[6], mu[7] = torch.nan, torch.inf, -torch.inf
    _, mu, dim = align_margin(a, mu, 1.0, 1)
    g = torch.randn(8, kernels)
    for ours, c in zip(by_triton(a, mu, g, 1.0, dim), by_c(a, mu, g, 1.0, dim), strict=True):
        torch.testing.assert_close(ours, c, atol=1e-6, rtol=0, equal_nan=True)
        assert ours.isnan().any(1).tolist() == [False, True, True, False, False, True, False, False]


@pytest.mark.parametrize("distance", [6.1, 7.0])
def test_a_rare_winner_counts(distance: float) -> None:
    a, mu = torch.tensor([[0.0, -distance]]), torch.tensor([[-50.0]])
    p, *_ = by_triton(a, mu, a, 1.0, 1)
    probability = torch.special.ndtr(torch.tensor(-distance / 2**0.5)).item()
    assert p[0, 1].item() == pytest.approx(probability, rel=0.05, abs=2e-8)
