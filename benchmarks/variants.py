"""Variants of the block and of the optimizers that were tried for the presets, one change each (docs/recipes.md).

A plugin: ``cd benchmarks; tembed train rn26-embed --data cifar10 --preset fast --optimizer muon-hidden --plugin
variants``.
"""

from functools import partial
from typing import Any

import torch
from torch import nn

from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.lab.training.muon import Muon
from tembed.lab.training.optimizers import register_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.models.network import Network
from tembed.models.registry import register_model
from tembed.models.resnet import local, resnet

OPTIONS = ("maximizer", "softmax_on_bn", "smooth_shortcut", "window")


class LongValues(FeatureEmbedding):
    """Class vectors that start four times as long (see `network`)."""


class IdentityShortcut(FeatureEmbedding):
    """The shortcut's convolution starts as the identity (see `network`)."""


class LongIdentity(LongValues, IdentityShortcut):
    """Both changes."""


class FixedWindow(FeatureEmbedding):
    """4x4 patches, 16 pixels wide in the image, while the training images grow."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, window=4, **options)


def muon_for_hidden(model: nn.Module, recipe: Recipe) -> Muon:
    """Muon without the score and value convolutions of the block, which AdamW trains with the head."""
    optimizer = Muon(model, recipe.lr, recipe.betas, recipe.weight_decay)
    own = []
    for module in model.modules():
        if isinstance(module, FeatureEmbedding | DeepSupervision):
            own.append(module.match.score.weight)
        if isinstance(module, FeatureEmbedding):
            own.append(module.values.weight)
    kernels, rest = optimizer.param_groups
    kernels["params"] = [w for w in kernels["params"] if not any(w is o for o in own)]
    rest["params"] += own
    optimizer.adamw.param_groups[0]["params"] = rest["params"]
    return optimizer


def network(num_classes: int, input_size: int, *, block: type[FeatureEmbedding], **options: Any) -> Network:
    model = resnet(num_classes, input_size, units=2, block=block, **options)
    made = model.block
    assert isinstance(made, FeatureEmbedding)
    assert isinstance(made.shortcut, nn.Conv2d)
    if isinstance(made, IdentityShortcut):  # the network initialises all convolutions after the block is made
        nn.init.dirac_(made.shortcut.weight)
    if isinstance(made, LongValues):
        with torch.no_grad():
            made.values.weight.mul_(4)
    return model


for name, block in (
    ("long-values", LongValues),
    ("identity-shortcut", IdentityShortcut),
    ("long-identity", LongIdentity),
    ("fixed-window", FixedWindow),
):
    register_model(f"rn26-embed-{name}", partial(network, block=block), block="embed", options=OPTIONS)
# What rn26-embed-local changes, one thing at a time (locality.toml): the window alone, the kernels of stage 3 alone,
# and both without the wider stage 3 that spends the parameters of rn26-embed.
for name, build in (
    ("window2", partial(resnet, units=2, block=FeatureEmbedding, window=2)),
    ("local-half", partial(local, stage3_inner=316, window=None)),
    ("local-narrow", local),
):
    register_model(f"rn26-embed-{name}", build, block="embed", options=OPTIONS)
register_optimizer("muon-hidden", muon_for_hidden)
