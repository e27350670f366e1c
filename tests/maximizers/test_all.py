"""What holds for every soft maximizer: limits, invariances, unusual inputs, compilation, export and the registry."""

import math
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tembed import maximizers
from tembed.common.errors import TembedError
from tembed.maximizers import entropic, one_hot, perturbed
from tembed.maximizers.bn_relu import BNReLU
from tembed.maximizers.entropic import Entropic
from tembed.maximizers.one_hot import OneHot
from tembed.maximizers.perturbed import Perturbed

SOFT = [pytest.param(entropic, id="entropic"), pytest.param(perturbed, id="exact")]
Maximizer = Callable[..., Tensor]


def sampled(a: Tensor, mu: float | Tensor = 2.5, eps: float = 1.0, dim: int = 1) -> Tensor:
    return perturbed(a, mu, eps, dim, method="sample", samples=200)


EVERY = [*SOFT, pytest.param(sampled, id="sampled"), pytest.param(one_hot, id="one-hot")]


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
def test_permutation_and_shift_invariance(f: Maximizer) -> None:
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


@pytest.mark.parametrize("f", EVERY)
def test_nan_makes_its_whole_pixel_nan(f: Maximizer) -> None:
    a = torch.zeros(2, 4, 3, 3)
    a[1, 2, 0, 0] = torch.nan
    p = f(a)
    assert p[1, :, 0, 0].isnan().all()
    assert p.isnan().sum() == 4
    mu = torch.full((2, 1, 1, 1), 2.5)
    mu[0] = torch.nan
    p = f(torch.zeros(2, 4, 3, 3), mu)
    assert p[0].isnan().all()
    assert p[1].isfinite().all()


@pytest.mark.parametrize("f", SOFT)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_is_not_lost_below_a_clear_winner(f: Maximizer, value: float) -> None:
    """The other kernels are so far below that the kernel may leave them out."""
    a = torch.zeros(1, 4, 4, 8)
    a[:, 0] = 20
    a[0, 2, 0, 0] = value
    a.requires_grad_()
    p = f(a)
    assert p[0, :, 0, 0].isnan().all()
    assert p.isnan().sum() == 4
    (g,) = torch.autograd.grad((p * torch.arange(4.0)[:, None, None]).sum(), a)
    assert g[0, :, 0, 0].isnan().all()
    assert g.isnan().sum() == 4


def test_nan_makes_the_sampled_gradient_nan() -> None:
    a = torch.tensor([[1.0, math.nan], [1.0, 2.0]], requires_grad=True)
    (g,) = torch.autograd.grad(sampled(a).sum(), a)
    assert g.isnan().tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("f", EVERY)
def test_an_infinite_margin_gives_the_limit(f: Maximizer, as_tensor: bool, dtype: torch.dtype) -> None:
    """Nothing exceeds plus infinity. Minus infinity never wins, like a margin far below every activation."""
    a = torch.tensor([[3.0, 2.0, -1.0], [1.0, 2.0, 2.2]], dtype=dtype, requires_grad=True)
    for mu in (math.inf, -math.inf):
        margin = torch.full((2, 1), mu, dtype=dtype, requires_grad=True) if as_tensor else mu
        torch.manual_seed(0)
        p = f(a, margin)
        p.sum().backward()
        if mu > 0:
            assert p.eq(0).all()
        else:
            torch.manual_seed(0)
            torch.testing.assert_close(p, f(a, -1000.0))
            torch.testing.assert_close(p.sum(1), torch.ones(2, dtype=dtype), atol=1e-2, rtol=0)
        assert a.grad.isfinite().all()
        assert not as_tensor or margin.grad.eq(0).all()


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_eps_and_eta_must_be_positive_and_finite(value: float) -> None:
    for f in (entropic, perturbed, sampled):
        with pytest.raises(TembedError, match=r"`eps` is .*; it must be positive and finite"):
            f(torch.zeros(2, 3), 2.5, value)
    for kind in (Entropic, Perturbed):
        with pytest.raises(TembedError, match="`eps` is"):
            kind(eps=value)
    for kind in (Entropic, Perturbed, OneHot):
        with pytest.raises(TembedError, match="`eta` is"):
            kind(eta=value)


def test_a_margin_of_nan_is_refused() -> None:
    for f in (entropic, perturbed, sampled, one_hot):
        with pytest.raises(TembedError, match="`mu` is nan"):
            f(torch.zeros(2, 3), math.nan)
    for kind in (Entropic, Perturbed, OneHot):
        with pytest.raises(TembedError, match="`mu` is nan"):
            kind(mu=math.nan)


@pytest.mark.parametrize("f", [*SOFT, pytest.param(sampled, id="sampled")])
def test_the_largest_eps_gives_one_hot(f: Maximizer) -> None:
    a = torch.tensor([[3.0, 2.0, -1.0], [1.0, 2.0, 2.2]])
    torch.testing.assert_close(f(a, 2.5, 1e38), one_hot(a, 2.5))


@pytest.mark.parametrize("f", EVERY)
def test_autocast_runs_forward_and_backward(f: Maximizer) -> None:
    """Activations arrive in bfloat16 from a convolution."""
    conv = torch.nn.Conv2d(3, 8, 1)
    x = torch.randn(2, 3, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        a = conv(x)
        torch.manual_seed(0)
        p = f(a, 0.5)
        p.float().square().sum().backward()
    assert a.dtype == torch.bfloat16
    torch.manual_seed(0)
    torch.testing.assert_close(p.float(), f(a.detach().float(), 0.5), atol=0.02, rtol=0)
    assert conv.weight.grad.isfinite().all()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile uses deprecated features of torch
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


def test_the_registry_lists_the_maximizers_with_their_constants() -> None:
    every = {"mu": 2.5, "eta": 17.0, "eps": 1.0}
    expected = {"bn-relu": {}, "entropic": every, "one-hot": {"mu": 2.5, "eta": 17.0}, "perturbed": every}
    expected["perturbed-sampled"] = every
    assert {name: maximizers.constants(name) for name in maximizers.names()} == expected


def test_create_passes_the_constants_on() -> None:
    assert type(maximizers.create("bn-relu", 7)) is BNReLU
    for name, method in (("perturbed", "exact"), ("perturbed-sampled", "sample")):
        made = maximizers.create(name, 7, mu=1.0, eta=3.0, eps=2.0)
        assert isinstance(made, Perturbed)
        assert (made.mu, made.eta, made.eps, made.method) == (1.0, 3.0, 2.0, method)
    assert maximizers.create("one-hot", 7).eta == 17.0


def test_a_registered_maximizer_is_created_with_its_own_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    class Softmax(torch.nn.Module):
        def __init__(self, channels: int, temperature: float):
            super().__init__()
            self.channels, self.temperature = channels, temperature

    registry = sys.modules["tembed.maximizers.lookup"]
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    maximizers.register("soft", Softmax, {"temperature": 0.5})
    assert "soft" in maximizers.names()
    assert maximizers.constants("soft") == {"temperature": 0.5}
    assert maximizers.create("soft", 7).temperature == 0.5
    made = maximizers.create("soft", 7, temperature=2.0)
    assert (made.channels, made.temperature) == (7, 2.0)
    with pytest.raises(TembedError, match="already registered"):
        maximizers.register("soft", Softmax, {})


@pytest.mark.parametrize(
    ("name", "constants", "message"),
    [
        ("argmax", {}, "unknown maximizer 'argmax'; choose from: bn-relu, entropic"),
        ("entropik", {}, "did you mean 'entropic'"),
        ("bn-relu", {"mu": 2.5}, "has no constant 'mu'; it has none"),
        ("one-hot", {"eps": 1.0}, "has no constant 'eps'; its constants are mu, eta"),
        ("entropic", {"eps": math.inf}, "`eps` is inf"),
    ],
)
def test_unknown_names_and_constants_are_refused(name: str, constants: dict[str, float], message: str) -> None:
    with pytest.raises(TembedError, match=message):
        maximizers.create(name, 3, **constants)
