"""The mean of the weights over the last share of a run, which is validated and tested instead of the last weights."""

import copy

import torch
from torch import nn

from tembed.lab.training.recipe import Recipe
from tembed.lab.training.state import State, copy_tensors


class Averaging:
    """Keeps ``state.average``: the mean weights and BN statistics over the last ``recipe.averaging`` of all steps."""

    def __init__(self, recipe: Recipe, model: nn.Module, steps: int):
        self.steps = recipe.epochs * steps
        self.first = self.steps - round(recipe.averaging * self.steps)
        self.model = copy.deepcopy(model) if recipe.averaging else None

    def update(self, state: State, model: nn.Module, done: int) -> None:
        """Include the weights after step ``done`` of the run (from 1)."""
        count = done - self.first
        if count < 1:
            return
        if count == 1:
            state.average = copy_tensors(model)
            return
        now = model.state_dict()
        weights = [name for name, mean in state.average.items() if mean.is_floating_point()]
        others = [name for name in state.average if name not in weights]  # the numbers of batches that BN has seen
        torch._foreach_lerp_([state.average[name] for name in weights], [now[name] for name in weights], 1 / count)
        if others:
            torch._foreach_copy_([state.average[name] for name in others], [now[name] for name in others])

    def of(self, state: State, model: nn.Module) -> nn.Module:
        """The network to evaluate: with the mean weights, or ``model`` itself before there is a mean."""
        if self.model is None or not state.average:
            return model
        self.model.to(next(model.parameters()).device).load_state_dict(state.average)
        return self.model
