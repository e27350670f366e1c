"""P1: the closed form against a linear-program solver."""

import numpy as np
import torch
from scipy.optimize import linprog

from tembed.maximizers import one_hot
from tembed.maximizers.one_hot import OneHot


def test_equals_a_linear_program_solver() -> None:
    generator = torch.Generator().manual_seed(0)
    for kernels in (1, 2, 5, 20):
        for _ in range(20):
            a = torch.randn(kernels, dtype=torch.double, generator=generator)
            mu = torch.randn((), dtype=torch.double, generator=generator).item()
            cost = -np.append(a.numpy(), mu)
            solution = linprog(cost, A_eq=np.ones((1, kernels + 1)), b_eq=[1.0], bounds=(0, None))
            assert solution.success
            np.testing.assert_allclose(one_hot(a, mu, dim=0).numpy(), solution.x[:-1], atol=1e-9)


def test_nothing_matches_below_the_margin() -> None:
    a = torch.tensor([[1.0, 2.0], [2.5, 0.0], [3.0, 2.9]])
    assert one_hot(a, 2.5).tolist() == [[0, 0], [0, 0], [1, 0]]


def test_the_gradient_is_zero_and_not_missing() -> None:
    a, mu = torch.randn(2, 3, 4, requires_grad=True), torch.zeros(1, 1, 4, requires_grad=True)
    one_hot(a, mu).sum().backward()
    assert a.grad.eq(0).all()
    assert mu.grad.shape == mu.shape
    assert mu.grad.eq(0).all()


def test_module_scales_by_eta() -> None:
    assert OneHot(mu=0.0, eta=17.0)(torch.tensor([[1.0, 2.0]])).tolist() == [[0, 17]]
