"""P2: the integral against a fine quadrature, finite differences, samples and Prop. 3.1."""

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from memory import peak_memory
from support.references import fine_quadrature
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.kernels import exact_p2 as kernel
from tembed.maximizers import perturbed
from tembed.maximizers.perturbed import Perturbed

module = sys.modules["tembed.maximizers.perturbed"]  # the package has a function of the same name


@pytest.fixture(params=["kernel", "eager"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both exact forms: the compiled kernel, and the loop that replaces it."""
    if request.param == "eager":
        monkeypatch.setattr(kernel, "load", lambda: None)
    else:
        assert kernel.load() is not None, "the kernel does not compile here"
    return request.param


def hard_inputs(kernels: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(kernels)
    yield torch.randn(64, kernels, generator=generator)
    yield 3 * torch.randn(64, kernels, generator=generator) + 2.5
    yield 2.5 + 1e-3 * torch.randn(64, kernels, generator=generator)  # near-ties, with the margin too
    for lead in (0.5, 1.0, 2.0, 3.0, 5.0):  # one leader above ties
        a = torch.full((64, kernels), 2.5) - 0.3 * torch.rand(64, 1, generator=generator)
        a[:, 0] += lead
        yield a


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [1, 2, 10, 32, 64, 128, 256])
def test_exact_equals_a_fine_quadrature(kernels: int, path: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for given in hard_inputs(kernels):
        for g in (torch.randn(given.shape, generator=generator).sign(), torch.eye(kernels)[0].expand_as(given)):
            a, mu = given.clone().requires_grad_(), torch.tensor([[2.5]], requires_grad=True)
            p = perturbed(a, mu)
            p.backward(g)
            p = p.detach()
            value, grad, grad_mu = fine_quadrature(a.detach(), 2.5, 1.0, g)
            assert (p - value).abs().max() <= 1e-5
            assert (a.grad - grad).abs().max() <= 1e-4
            assert (mu.grad - grad_mu.sum()).abs() <= 1e-4 * len(a)
            assert p.sum(1).max() <= 1 + 1e-4
            assert p.min() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [1, 10, 128, 256])
def test_all_nodes_at_once_equal_a_fine_quadrature(kernels: int) -> None:
    """The form that an exported graph contains, also along an axis that is not the last."""
    for given in hard_inputs(kernels):
        value = fine_quadrature(given, 2.5, 1.0, torch.ones_like(given))[0]
        p = module.integrate_at_once(given.T[None], torch.full((1, 1, len(given)), 2.5), 1.0, 1)
        assert (p[0].T - value).abs().max() <= 1e-5


def test_an_exported_program_has_no_loop_over_the_nodes() -> None:
    a = torch.randn(2, 32, 4, 4)
    program = torch.export.export(Perturbed(), (a,))
    assert len(program.graph.nodes) < 50
    torch.testing.assert_close(program.module()(a), Perturbed()(a), atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [1, 64, 256, 1000])
def test_float64_is_exact_to_ten_digits_for_any_number_of_kernels(kernels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for given in hard_inputs(kernels):
        a = given[:2].double().requires_grad_()
        for g in (torch.randn(a.shape, generator=generator).sign(), torch.eye(kernels)[0].expand_as(a)):
            p = perturbed(a)
            (grad,) = torch.autograd.grad(p, a, g.double())
            value, gradient, _ = fine_quadrature(a.detach(), 2.5, 1.0, g, nodes=400)
            assert (p - value).abs().max() <= 1e-10
            assert (grad - gradient).abs().max() <= 1e-10


@pytest.mark.parametrize("distance", [4.0, 5.0, 6.0, 6.1, 6.5, 7.0])
def test_a_rare_winner_counts(distance: float, path: str) -> None:
    """The lower of two activations wins with probability ``Phi(-distance / sqrt(2))``."""
    a = torch.tensor([[0.0, -distance]]).expand(16, 2)
    probability = torch.special.ndtr(torch.tensor(-distance / 2**0.5, dtype=torch.double)).item()
    assert perturbed(a, -50.0)[:, 1].tolist() == pytest.approx([probability] * 16, rel=0.05, abs=2e-8)


def test_many_ties_miss_nothing_at_the_upper_end(path: str) -> None:
    """The largest of 512 equal kernels is far above the mean of each, so the last nodes hold some of every share."""
    p = perturbed(torch.zeros(1, 512), -50.0)
    assert p.sum().item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("eps", [0.3, 1.0, 4.0])
def test_sharpness_and_one_margin_per_pixel(eps: float, path: str) -> None:
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(33, 20, generator=generator, requires_grad=True)
    mu = torch.randn(33, 1, generator=generator, requires_grad=True)
    g = torch.randn(33, 20, generator=generator)
    p = perturbed(a, mu, eps)
    p.backward(g)
    value, grad, grad_mu = fine_quadrature(a.detach(), mu.detach(), eps, g)
    torch.testing.assert_close(p, value.float(), atol=1e-5, rtol=0)
    torch.testing.assert_close(a.grad, grad.float(), atol=1e-4 * eps, rtol=0)
    torch.testing.assert_close(mu.grad, grad_mu.float(), atol=1e-4 * eps, rtol=0)


def test_gradcheck_in_float64() -> None:
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(2, 5, 2, 2, dtype=torch.double, generator=generator, requires_grad=True)
    mu = torch.randn(1, 1, 2, 2, dtype=torch.double, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, mu: perturbed(a, mu, 1.3), (a, mu))
    assert torch.autograd.gradgradcheck(lambda a, mu: perturbed(a, mu, 1.3), (a[:1, :3, :1, :1], mu[:, :, :1, :1]))


def test_double_backward_of_the_kernel_equals_float64(path: str) -> None:
    generator = torch.Generator().manual_seed(7)
    given = torch.randn(4, 6, generator=generator) + 2.0

    def penalty(a: Tensor) -> Tensor:
        a = a.requires_grad_()
        (g,) = torch.autograd.grad(perturbed(a).square().sum(), a, create_graph=True)
        return torch.autograd.grad(g.square().sum(), a)[0]

    torch.testing.assert_close(penalty(given.clone()), penalty(given.double()).float(), atol=1e-4, rtol=1e-3)


def test_sampling_refuses_a_second_derivative() -> None:
    a = torch.randn(2, 3, requires_grad=True)
    p = perturbed(a, method="sample", samples=5)
    with pytest.raises(TembedError, match="no second derivative; use the exact form"):
        torch.autograd.grad(p.sum(), a, create_graph=True)


def test_exact_equals_a_million_samples() -> None:
    a = torch.tensor([[2.6, 2.0, 1.0, 3.1, -4.0]])
    p = perturbed(a, method="sample", samples=1_000_000, generator=torch.Generator().manual_seed(3))
    assert (p - perturbed(a)).abs().max() < 4 * 0.5 / 1000  # four standard errors of a frequency


def test_jacobian_is_that_of_proposition_3_1() -> None:
    """Autograd through the integral against an estimate of ``E[eps p~ z^T]`` from samples."""
    a, eps, draws = torch.tensor([2.4, 2.9, 1.5], dtype=torch.double), 1.5, 400_000
    z = torch.randn(draws, 4, dtype=torch.double, generator=torch.Generator().manual_seed(4))
    winner = (torch.cat([a, torch.tensor([2.5], dtype=torch.double)]) + z / eps).argmax(1)
    by_samples = torch.stack([eps * (z * (winner == j)[:, None]).mean(0) for j in range(3)])[:, :3]
    by_autograd = torch.autograd.functional.jacobian(lambda a: perturbed(a, 2.5, eps, dim=0), a)
    assert (by_samples - by_autograd).abs().max() < 4 * eps / draws**0.5


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_every_axis_and_layout(layout: torch.memory_format, path: str) -> None:
    a = torch.randn(2, 7, 3, 5).to(memory_format=layout).requires_grad_()
    g = torch.randn(2, 7, 3, 5)
    perturbed(a).backward(g)
    rows = a.detach().permute(0, 2, 3, 1).reshape(-1, 7)
    value, grad, _ = fine_quadrature(rows, 2.5, 1.0, g.permute(0, 2, 3, 1).reshape(-1, 7))
    assert perturbed(a).is_contiguous(memory_format=layout)
    assert (perturbed(a).permute(0, 2, 3, 1).reshape(-1, 7) - value).abs().max() <= 1e-5
    assert (a.grad.permute(0, 2, 3, 1).reshape(-1, 7) - grad).abs().max() <= 1e-4
    for dim in (0, 2, -1):
        moved = perturbed(a.detach().movedim(1, dim), dim=dim).movedim(dim, 1)
        torch.testing.assert_close(moved, perturbed(a.detach()), atol=1e-6, rtol=0)


def test_slices_and_expanded_tensors(path: str) -> None:
    a = torch.randn(4, 12, 5, 5)[:, ::2, 1:, ::2]
    torch.testing.assert_close(perturbed(a), perturbed(a.contiguous()), atol=0, rtol=0)
    row = torch.randn(1, 6, 1)
    torch.testing.assert_close(perturbed(row.expand(2, 6, 3)), perturbed(row).expand(2, 6, 3), atol=1e-7, rtol=0)
    g = torch.ones(()).expand(2, 6, 3)  # what .sum().backward() passes on
    a = row.expand(2, 6, 3).clone().requires_grad_()
    perturbed(a).backward(g)
    assert a.grad.isfinite().all()


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    a = torch.randn(3, 40, 9, 9)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = perturbed(a)
        torch.set_num_threads(3)
        assert torch.equal(perturbed(a), one)
    finally:
        torch.set_num_threads(threads)


def test_a_kernel_at_minus_infinity_never_wins(path: str) -> None:
    a = torch.tensor([[1.0, -torch.inf, 2.0]])
    p = perturbed(a)
    assert p[0, 1] == 0
    torch.testing.assert_close(p[:, [0, 2]], perturbed(a[:, [0, 2]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kernels", [8, 64])
def test_forward_and_backward_need_less_than_eight_times_the_input(kernels: int, path: str) -> None:
    def run(a: Tensor, g: Tensor) -> Tensor:
        p = perturbed(a)
        p.backward(g)
        return p

    a = torch.randn(4, kernels, 64, 64, requires_grad=True)
    g = torch.randn_like(a)
    assert peak_memory(run, a, g) < 8 * a.nbytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sampling_counts_in_single_precision(dtype: torch.dtype) -> None:
    """600 ones summed in bfloat16 stop at 256, and so give 0.43."""
    a = torch.tensor([[50.0, 0.0]], dtype=dtype, requires_grad=True)
    p = perturbed(a, method="sample", samples=600)
    assert p.dtype == dtype
    assert p.tolist() == [[1.0, 0.0]]
    (g,) = torch.autograd.grad(p.sum(), a)
    assert g.dtype == dtype


def test_the_sampled_gradient_of_half_precision_is_that_of_single() -> None:
    values = torch.tensor([[2.0, 2.5, 1.0]])
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        a = values.to(dtype).requires_grad_()
        p = perturbed(a, method="sample", samples=20_000, generator=torch.Generator().manual_seed(1))
        (g,) = torch.autograd.grad(p, a, torch.tensor([[1.0, -1.0, 1.0]]).to(dtype))
        gradients.append(g.float())
    torch.testing.assert_close(gradients[1], gradients[0], atol=2e-3, rtol=1e-2)


def test_half_precision_is_computed_in_single() -> None:
    a = torch.randn(2, 9, 4).bfloat16()
    assert perturbed(a).dtype == torch.bfloat16
    torch.testing.assert_close(perturbed(a).float(), perturbed(a.float()), atol=5e-3, rtol=0)


def test_samples_are_reproducible_by_seed() -> None:
    a = torch.randn(2, 6, 3, 3)

    def run(seed: int) -> tuple[Tensor, Tensor]:
        leaf = a.clone().requires_grad_()
        p = perturbed(leaf, method="sample", samples=50, generator=torch.Generator().manual_seed(seed))
        p.square().sum().backward()
        return p.detach(), leaf.grad

    first, again, other = run(5), run(5), run(6)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_sampled_gradient_is_the_estimator_of_proposition_3_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain loop over the samples that the function draws."""
    drawn: list[Tensor] = []
    draw = module._draw

    def recording(*arguments: object) -> Iterator[tuple[Tensor, Tensor]]:
        for noise, winner in draw(*arguments):
            drawn.extend(noise.clone())
            yield noise, winner

    monkeypatch.setattr(module, "_draw", recording)
    a, g = torch.randn(3, 4, dtype=torch.double, requires_grad=True), torch.randn(3, 4, dtype=torch.double)
    mu = torch.zeros(3, 1, dtype=torch.double, requires_grad=True)
    p = perturbed(a, mu, 2.0, method="sample", samples=25)
    forward_samples = [z.clone() for z in drawn]
    drawn.clear()
    p.backward(g)
    assert all(torch.equal(x, y) for x, y in zip(forward_samples, drawn, strict=True)), "backward draws other noise"
    value, grad = torch.zeros(3, 5, dtype=torch.double), torch.zeros(3, 5, dtype=torch.double)
    for z in forward_samples:
        for n in range(3):
            k = max(range(5), key=lambda j: [*a[n].tolist(), 0.0][j] * 2.0 + z[n, j].item())
            value[n, k] += 1 / 25
            if k < 4:
                grad[n] += 2.0 / 25 * g[n, k] * z[n]
    torch.testing.assert_close(p, value[:, :4])
    torch.testing.assert_close(a.grad, grad[:, :4])
    torch.testing.assert_close(mu.grad, grad[:, 4:])


def test_sampling_memory_does_not_grow_with_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1 << 16)

    def run(a: Tensor, samples: int) -> None:
        perturbed(a, method="sample", samples=samples).sum().backward()

    a = torch.randn(2, 16, 16, 16, requires_grad=True)
    few, many = peak_memory(run, a, 20), peak_memory(run, a, 200)  # 20 samples take several chunks
    assert many <= 1.05 * few


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: perturbed(a, method="guess"), "'exact' or 'sample'"),
        (lambda a: perturbed(a, method="sample", samples=0), "at least 1"),
        (lambda a: perturbed(a, eps=0.0), "`eps` is 0.0; it must be positive and finite"),
        (lambda a: perturbed(a, dim=4), "not an axis"),
        (lambda a: perturbed(a, torch.zeros(3)), "does not broadcast"),
        (lambda a: perturbed(a.long()), "floating point"),
    ],
)
def test_mistakes_are_named(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(TembedError, match=message):
        call(torch.zeros(2, 3))
