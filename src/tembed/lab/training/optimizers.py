"""The optimizers by name. Listing them needs no torch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tembed.common.errors import TembedError
from tembed.lab.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Build = Callable[["nn.Module", Recipe], "Optimizer"]

_BUILDERS: dict[str, Build] = {}


def register_optimizer(name: str, build: Build) -> None:
    """Make ``build(model, recipe)`` the optimizer of recipes with ``optimizer=name``.

    The loop sets ``lr`` of every parameter group before each step. To resume bit for bit, the optimizer must keep
    everything that it remembers as tensors in ``state[parameter]``.
    """
    if name in _BUILDERS:
        raise TembedError(f"an optimizer named {name!r} is already registered")
    _BUILDERS[name] = build


def optimizer_names() -> list[str]:
    """The registered optimizers."""
    return list(_BUILDERS)


def make_optimizer(recipe: Recipe, model: "nn.Module") -> "Optimizer":
    """The optimizer of a complete recipe."""
    return _BUILDERS[recipe.optimizer](model, recipe)


def _eps(recipe: Recipe) -> float:
    from tembed.models.conventions import CONVENTIONS

    return CONVENTIONS[recipe.conventions].adam_eps


def _adam(model: "nn.Module", recipe: Recipe) -> "Optimizer":
    """Adam with L2 decay in the gradient, as in the paper (§4)."""
    from torch.optim import Adam

    return Adam(model.parameters(), recipe.lr, recipe.betas, _eps(recipe), recipe.weight_decay, fused=True)


def _adam_for_kernels(model: "nn.Module", recipe: Recipe) -> "Optimizer":
    """Adam whose L2 decay applies to the kernels of convolutions only, as in the Keras example (docs/recipes.md)."""
    from torch.optim import Adam

    kernels = [weight for weight in model.parameters() if weight.ndim == 4]
    rest = [weight for weight in model.parameters() if weight.ndim != 4]
    groups = [{"params": kernels, "weight_decay": recipe.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return Adam(groups, recipe.lr, recipe.betas, _eps(recipe), fused=True)


def _adamw(model: "nn.Module", recipe: Recipe) -> "Optimizer":
    from torch.optim import AdamW

    return AdamW(model.parameters(), recipe.lr, recipe.betas, _eps(recipe), recipe.weight_decay, fused=True)


def _muon(model: "nn.Module", recipe: Recipe) -> "Optimizer":
    from tembed.lab.training.muon import Muon

    return Muon(model, recipe.lr, recipe.betas, recipe.weight_decay)


register_optimizer("adam", _adam)
register_optimizer("adam-kernels", _adam_for_kernels)
register_optimizer("adamw", _adamw)
register_optimizer("muon", _muon)
