"""P3: the margin-augmented soft-max against the soft-max of torch, finite differences and Prop. 3.2."""

import torch

from tembed.maximizers import entropic


def test_equals_a_softmax_with_the_margin_appended() -> None:
    a, eps = torch.randn(3, 6, 4, 4), 1.7
    appended = torch.cat([a, torch.full((3, 1, 4, 4), 2.5)], 1)
    torch.testing.assert_close(entropic(a, 2.5, eps), (eps * appended).softmax(1)[:, :6])


def test_gradcheck_in_float64() -> None:
    a = torch.randn(2, 5, 3, dtype=torch.double, requires_grad=True)
    mu = torch.randn(2, 1, 1, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, mu: entropic(a, mu, 1.3), (a, mu))
    assert torch.autograd.gradgradcheck(lambda a, mu: entropic(a, mu, 1.3), (a, mu))


def test_jacobian_is_that_of_proposition_3_2() -> None:
    a, eps = torch.randn(7, dtype=torch.double), 0.8
    p = entropic(a, 1.0, eps, dim=0)
    jacobian = torch.autograd.functional.jacobian(lambda a: entropic(a, 1.0, eps, dim=0), a)
    torch.testing.assert_close(jacobian, eps * (torch.diag(p) - torch.outer(p, p)))


def test_solves_the_regularised_problem() -> None:
    """No feasible point near the solution has a better objective of P3."""
    a, mu, eps = torch.randn(5, dtype=torch.double), 0.4, 1.5
    weights = torch.cat([a, torch.tensor([mu], dtype=torch.double)])

    def objective(p: torch.Tensor) -> torch.Tensor:
        return (weights * p).sum() - torch.xlogy(p, p).sum() / eps

    p = entropic(a, mu, eps, dim=0)
    p = torch.cat([p, 1 - p.sum(0, keepdim=True)])
    for _ in range(200):
        other = (p + 0.01 * torch.randn(6, dtype=torch.double)).clamp(min=0)
        assert objective(other / other.sum()) <= objective(p) + 1e-12
