"""Measures the statistics of batch normalisation again, for runs with too few steps for running means to follow.

A running mean with momentum 0.1 forgets its initial value in about 50 steps, and lags behind the weights while they
change fast. After a handful of steps an evaluation with it can be far worse than the weights deserve.
"""

import torch
from torch import nn

from tembed.lab.data.batches import Batches
from tembed.lab.training.process_group import Forward, ProcessGroup
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.schedule import derived_seed

FEW_STEPS = 50
"""With fewer steps per epoch, the statistics are measured again after each epoch."""


def recalibrates(recipe: Recipe, steps: int) -> bool:
    """Whether a run with this many steps per epoch measures its statistics again.

    Short runs do if their rate falls to zero or their weights are averaged. The paper's training never does.
    """
    return steps < FEW_STEPS and (recipe.schedule == "one-cycle" or recipe.averaging > 0)


def staleness_warning(recipe: Recipe, steps: int) -> str | None:
    """A warning for a run that ends before its running statistics have settled."""
    total = recipe.epochs * steps
    if total >= FEW_STEPS or recalibrates(recipe, steps):
        return None
    return (
        f"warning: after {total} steps the running statistics of batch normalisation are far from those of the "
        "weights, so that validation and test can be much worse than training; train for more epochs, or with the "
        "preset fast, which measures the statistics after each epoch"
    )


@torch.no_grad()
def recalibrate(
    model: nn.Module, train: Batches, epoch: int, seed: int, group: ProcessGroup, forward: Forward | None = None
) -> None:
    """Replace the running statistics by the means over all batches of an epoch, each by its number of images.

    Frozen layers, which stay in evaluation mode when the model trains, keep theirs. ``seed`` determines the noise of
    each batch; only the sampled maximizer uses it.
    """
    was_training = model.training
    model.train()
    layers = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    layers = [layer for layer in layers if layer.training and layer.track_running_stats]
    momenta = [layer.momentum for layer in layers]
    seen = [layer.num_batches_tracked for layer in layers]
    before = [None if number is None else number.clone() for number in seen]
    done = 0
    with torch.random.fork_rng(devices=[]):
        for step, (images, _) in enumerate(train.epoch(epoch)):
            count = train.order.count(step)
            done += count
            for layer in layers:
                layer.momentum = count / done  # the running mean becomes the mean of the batches so far
            torch.manual_seed(derived_seed(seed, "recalibration", epoch, step, *group.noise_key))
            (forward or model)(*group.to_device(images))
    for layer, momentum, number, old in zip(layers, momenta, seen, before, strict=True):
        layer.momentum = momentum
        if number is not None and old is not None:
            number.copy_(old)
    model.train(was_training)
