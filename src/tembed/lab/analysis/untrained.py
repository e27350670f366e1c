"""The network of a run with random weights: what a claim about learning must be ahead of."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tembed.block import FeatureEmbedding, initialize
from tembed.lab.data.batches import evaluation_batches
from tembed.lab.data.image_set import ImageSet
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork, build

COUNT = 5
"""Untrained networks: enough to see how much they differ from each other."""
MANY = 20
"""Untrained networks for measures that vary much between them. Only the first `COUNT` are kept in memory."""
CALIBRATION = 500
"""Training images for the BN statistics of an untrained network."""
BATCH = 100


def calibration_images(images: ImageSet, seed: int) -> ImageSet:
    """Up to `CALIBRATION` random training images."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:CALIBRATION])
    return images.subset(torch.from_numpy(chosen))


@torch.no_grad()
def untrained(network: AnyNetwork, images: ImageSet, seed: int, keep: Sequence[str] = ()) -> AnyNetwork:
    """The same network with random weights, and the BN statistics of up to `CALIBRATION` of these images.

    The block has random class vectors, also where training started from zero ones. ``keep``: names of submodules that
    keep their weights and statistics.
    """
    device = next(network.parameters()).device
    with reproducible(device):
        torch.manual_seed(seed)
        known = network.description
        model = build(known).to(device)
        model.description = known.changed()
        for module in model.modules():
            if isinstance(module, FeatureEmbedding):
                initialize(module)
        rng = np.random.default_rng(seed)
        chosen = torch.from_numpy(np.sort(rng.permutation(len(images))[:CALIBRATION]))
        kept = [model.get_submodule(name) for name in keep]
        for name, module in zip(keep, kept, strict=True):
            module.load_state_dict(network.get_submodule(name).state_dict())
        fixed = {id(module) for submodule in kept for module in submodule.modules()}
        norms = [
            module
            for module in model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and id(module) not in fixed
        ]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        mean, std = known.normalisation
        batches = evaluation_batches(images.subset(chosen), BATCH, mean=mean, std=std)
        model.train()
        for module in kept:
            module.eval()
        for norm in norms:
            norm.train()  # also in a frozen network
        for pixels, _ in batches.epoch(0):
            model(pixels.to(device))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return model.eval()
