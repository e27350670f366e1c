"""What holds for every soft maximizer: limits, invariances, odd inputs, compilation and export."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tembed.maximizers import Entropic, Perturbed, entropic, one_hot, perturbed

SOFT = [pytest.param(entropic, id="entropic"), pytest.param(perturbed, id="exact")]
Maximizer = Callable[..., Tensor]


@pytest.mark.parametrize("f", SOFT)
def test_large_eps_gives_one_hot(f: Maximizer) -> None:
    a = torch.tensor([[3.0, 2.0, -1.0], [1.0, 2.0, 2.2]])
    torch.testing.assert_close(f(a, 2.5, 1e4), one_hot(a, 2.5))


@pytest.mark.parametrize("f", SOFT)
@pytest.mark.parametrize("kernels", [1, 9])
def test_small_eps_gives_equal_shares(f: Maximizer, kernels: int) -> None:
    shares = f(torch.randn(4, kernels), 2.5, 1e-6)
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / (kernels + 1)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("f", SOFT)
def test_permutation_and_shift(f: Maximizer) -> None:
    a, order = torch.randn(5, 11), torch.randperm(11)
    torch.testing.assert_close(f(a[:, order], 0.5), f(a, 0.5)[:, order], atol=2e-6, rtol=0)
    torch.testing.assert_close(f(a + 3.0, 3.5), f(a, 0.5), atol=2e-6, rtol=0)


@pytest.mark.parametrize("f", SOFT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_activations(f: Maximizer, dtype: torch.dtype) -> None:
    a = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, 0.0]], dtype=dtype, requires_grad=True)
    p = f(a)
    p.sum().backward()
    expected = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0.5, 0.5, 0]], dtype=dtype)
    torch.testing.assert_close(p.detach(), expected, atol=1e-5, rtol=0)
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("f", [*SOFT, pytest.param(one_hot, id="one-hot")])
def test_empty_batch_and_a_single_kernel(f: Maximizer) -> None:
    empty = torch.zeros(0, 5, 4, 4, requires_grad=True)
    f(empty).sum().backward()
    assert empty.grad.shape == (0, 5, 4, 4)
    assert f(torch.full((2, 1), 9.0)).sum() == pytest.approx(2, abs=1e-2)


@pytest.mark.parametrize("f", [*SOFT, pytest.param(one_hot, id="one-hot")])
def test_vectors_and_maps_agree(f: Maximizer) -> None:
    a = torch.randn(2, 8, 3, 3)
    by_pixel = torch.stack([f(a[n, :, i, j], 0.5, dim=0) for n in range(2) for i in range(3) for j in range(3)])
    torch.testing.assert_close(f(a, 0.5).permute(0, 2, 3, 1).reshape(18, 8), by_pixel, atol=1e-6, rtol=0)


@pytest.mark.parametrize("f", SOFT)
def test_a_margin_tensor_broadcasts_and_its_gradient_is_summed(f: Maximizer) -> None:
    a = torch.randn(3, 4, 5, dtype=torch.double)
    for shape in ((), (1,), (5,), (1, 1), (3, 1, 1), (3, 1, 5)):
        mu = torch.zeros(shape, dtype=torch.double, requires_grad=True)
        f(a, mu).square().sum().backward()
        whole = torch.zeros(3, 1, 5, dtype=torch.double, requires_grad=True)
        f(a, whole).square().sum().backward()
        torch.testing.assert_close(mu.grad, whole.grad.sum_to_size(shape) if shape else whole.grad.sum())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile uses deprecated parts of torch
@pytest.mark.parametrize("module", [Entropic(), Perturbed()])
def test_compiles_as_one_graph(module: torch.nn.Module) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True)
    a, b = (torch.randn(2, 8, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True) for _ in range(2))
    module(a).square().sum().backward()
    compiled(b).square().sum().backward()
    torch.testing.assert_close(compiled(b), module(a), atol=1e-4, rtol=0)
    torch.testing.assert_close(b.grad, a.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("module", [Entropic(), Perturbed()])
def test_exports_to_plain_operations(module: torch.nn.Module) -> None:
    a = torch.randn(2, 8, 4, 4)
    program = torch.export.export(module, (a,))
    assert "tembed" not in str(program.graph)
    torch.testing.assert_close(program.module()(a), module(a), atol=1e-4, rtol=0)
