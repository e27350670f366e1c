"""Muon against the singular value decomposition, and its AdamW share against torch's AdamW."""

import pytest
import torch
from torch import nn

from tembed.common.errors import TembedError
from tembed.lab.training.muon import REST, SIZE, Muon, group_parameters, orthogonal
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.state import State, gather, restore
from tembed.models.registry import create_model


@pytest.mark.parametrize("shape", [(8, 8), (5, 40), (40, 5), (128, 128), (64, 576), (10, 128)])
def test_the_singular_values_become_one_and_the_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    (found,) = orthogonal(matrix[None])
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ found @ v.T  # diagonal where the singular vectors are the same
    diagonal = inner.diagonal()
    large = torch.linalg.svdvals(matrix) > 0.02 * matrix.norm()  # the smallest ones need more rounds
    assert ((diagonal[large] > 0.6) & (diagonal[large] < 1.3)).all()
    torch.testing.assert_close(inner - diagonal.diag(), torch.zeros_like(inner), atol=1e-4, rtol=0)


def test_nothing_moves_without_a_gradient() -> None:
    assert torch.equal(orthogonal(torch.zeros(1, 4, 6)), torch.zeros(1, 4, 6))


@pytest.mark.parametrize("size", [1e-8, 1e-12, 1e-20, 1e-25, 1e-30, 1e-38, 1e-44])
def test_tiny_values_are_not_blown_up(size: float) -> None:
    # The squares of such numbers underflow, so their norm can be 0.
    found = orthogonal(torch.full((1, 4, 6), size))
    assert found.isfinite().all()
    assert found.abs().max() < 1


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3), nn.Flatten(), nn.Linear(6, 4)
    )


@pytest.mark.parametrize("name", ["adam", "adam-kernels", "adamw", "muon"])
def test_an_optimizer_has_the_settings_of_the_recipe(name: str) -> None:
    recipe = Recipe("rn26", "cifar10", optimizer=name, lr=0.03, betas=(0.8, 0.95), weight_decay=0.07)
    groups = make_optimizer(recipe, network()).param_groups
    assert max(group["lr"] * group.get("scale", 1.0) for group in groups) == pytest.approx(0.03)
    assert max(group["weight_decay"] for group in groups) == pytest.approx(0.07)
    for group in groups:
        assert group.get("betas", (0.8, 0.95)) == (0.8, 0.95)


def test_kernels_are_the_weights_of_hidden_convolutions() -> None:
    kernels, rest = group_parameters(network().parameters())
    assert [tuple(kernel.shape) for kernel in kernels] == [(6, 8, 3, 3)]
    assert len(rest) == 6


def test_kernels_take_muons_steps_and_the_rest_takes_adamws() -> None:
    ours, theirs = network(), network()
    muon = Muon(ours, lr=0.01, betas=(0.9, 0.999), weight_decay=0.1)
    kernel = theirs[2].weight
    rest = [p for p in theirs.parameters() if p is not kernel]
    adamw = torch.optim.AdamW(rest, lr=0.01 * REST, betas=(0.9, 0.999), weight_decay=0.1)
    momentum = torch.zeros(6, 72)
    for number in range(3):
        images = torch.randn(5, 3, 5, 5, generator=torch.Generator().manual_seed(number))
        for model in (ours, theirs):
            model.zero_grad()
            model(images).square().mean().backward()
        muon.step()
        adamw.step()
        with torch.no_grad():
            gradient = kernel.grad.reshape(6, 72)
            momentum = 0.9 * momentum + gradient
            step = 0.01 * SIZE * 72**0.5 * orthogonal((gradient + 0.9 * momentum)[None]).reshape(kernel.shape)
            torch.testing.assert_close(ours[2].weight, kernel * (1 - 0.001) - step)
            kernel.copy_(ours[2].weight)
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_adam_kernels_decays_the_kernels_of_convolutions_and_nothing_else() -> None:
    """Without a gradient, only decay moves a weight."""
    model = create_model("rn26-embed")
    optimizer = make_optimizer(Recipe("rn26-embed", "cifar10", optimizer="adam-kernels", weight_decay=2e-4), model)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {name for name, weight in model.named_parameters() if weight.ndim == 4}
    assert any(name.startswith("block.values") for name in moved)


@pytest.mark.parametrize("name", ["adam", "adam-kernels", "adamw", "muon"])
def test_a_restored_optimizer_takes_the_same_steps_bit_for_bit(name: str) -> None:
    recipe = Recipe("rn26", "cifar10", optimizer=name, lr=0.01, weight_decay=0.1)
    whole, saved = network(), network()
    first, second = make_optimizer(recipe, whole), make_optimizer(recipe, saved)
    for step in range(4):
        if step == 2:  # continue the second in a new model and a new optimizer
            tensors = {key: value.clone() for key, value in gather(State(), saved, second).items()}
            saved = network()
            second = make_optimizer(recipe, saved)
            restore(State().to_json(), tensors, saved, second)
        for model, optimizer in ((whole, first), (saved, second)):
            take_step(model, optimizer, step)
    for p, q in zip(whole.parameters(), saved.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_checkpoint_from_before_torchs_adamw_is_converted() -> None:
    """Its moments had other names. After restoring them, the next step is that of a run that was never stopped."""
    recipe = Recipe.fast("rn26", "cifar10", lr=0.01)
    whole, old = network(), network()
    first, second = make_optimizer(recipe, whole), make_optimizer(recipe, old)
    for step in range(2):
        take_step(whole, first, step)
        take_step(old, second, step)
    names = {"exp_avg": "mean", "exp_avg_sq": "square"}
    tensors = {}
    for key, value in gather(State(), old, second).items():
        start, _, last = key.rpartition(".")
        tensors[f"{start}.{names[last]}" if key.startswith("optimizer.") and last in names else key] = value.clone()
    assert any(key.endswith(".square") for key in tensors)
    old = network()
    second = make_optimizer(recipe, old)
    restore(State().to_json(), tensors, old, second)
    take_step(whole, first, 2)
    take_step(old, second, 2)
    for p, q in zip(whole.parameters(), old.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_checkpoint_of_another_optimizer_is_refused() -> None:
    model = network()
    adam = make_optimizer(Recipe("rn26", "cifar10"), model)
    take_step(model, adam, 0)
    tensors = gather(State(), model, adam)
    with pytest.raises(TembedError, match="its optimizer state does not fit this model"):
        restore(State().to_json(), {k: v for k, v in tensors.items() if ".0.weight." not in k}, model, adam)


def test_a_parameter_without_a_gradient_has_no_state_after_a_resume_either() -> None:
    """As a layer that the user froze, or a branch that is not used."""
    recipe = Recipe.fast("rn26", "cifar10", lr=0.01)
    whole, again = network(), network()
    for model in (whole, again):
        model.register_parameter("unused", nn.Parameter(torch.zeros(2)))
        next(model.parameters()).requires_grad_(False)
    first, second = make_optimizer(recipe, whole), make_optimizer(recipe, again)
    take_step(whole, first, 0)
    restore(State().to_json(), {k: v.clone() for k, v in gather(State(), whole, first).items()}, again, second)
    for number in (1, 2):
        take_step(whole, first, number)
        take_step(again, second, number)
    assert len(second.state) == len(first.state)
    for p, q in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    images = torch.randn(5, 3, 5, 5, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()
