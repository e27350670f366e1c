"""How much faster an epoch on cached features is than an epoch of rn26-embed, in one run.

    python benchmarks/frozen.py [--images 2048] [--rounds 3]

Both train on the same number of CIFAR-sized images: rn26-embed from the images, with the fast preset, and the block
with a linear head from half-precision features of rn26 at stage 3, with the frozen preset. Rounds alternate, and the
processor time of each epoch counts, so that other processes disturb the ratio little. Loading is included, validation
is not. Target: a ratio of at least 30.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from tembed.attachment.frozen import BlockAndHead
from tembed.block import FeatureEmbedding
from tembed.lab.data.batches import Batches, training_batches
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.order import Order
from tembed.lab.training.environment import keep_freed_memory
from tembed.lab.training.frozen_features import VIEWS, CachedFeatures
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.starting import build
from tembed.loss import EmbeddingLoss

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def epoch(model: torch.nn.Module, batches: Batches, recipe: Recipe) -> Callable[[int], float]:
    """A function that trains one epoch and returns its processor time in seconds."""
    optimizer, loss = make_optimizer(recipe, model), EmbeddingLoss()
    model.train()

    def run(number: int) -> float:
        start = time.process_time()
        for inputs, labels in batches.epoch(number):
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
        return time.process_time() - start

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    count = given.images
    pixels = torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8).numpy()
    classes = tuple(map(str, range(10)))
    images = ImageSet(pixels, torch.randint(10, (count,)), classes, torch.arange(count))

    whole = Recipe.fast("rn26-embed", "cifar10").complete()
    full = epoch(build(whole, 10, 32), training_batches(images, whole.batch_size, mean=MEAN, std=STD), whole)

    recipe = Recipe.from_preset("frozen", "tembed:rn26@stage3", "cifar10", init="random").complete()
    views = tuple(
        np.random.default_rng(view).normal(size=(count, 8, 8, 128)).astype(np.float16) for view in range(VIEWS)
    )
    trained_part = BlockAndHead(FeatureEmbedding(128, 10, softmax_on_bn=True), 128, 10)
    trained_part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cached = Batches(images, Order(count, PRESETS["frozen"]["batch_size"]), CachedFeatures(views))
    frozen = epoch(trained_part, cached, recipe)

    frozen(0)  # warm-up
    times = [(full(number), frozen(number)) for number in range(given.rounds)]
    for slow, fast in times:
        print(f"rn26-embed {slow:7.2f} s, cached features {fast:6.3f} s, ratio {slow / fast:5.1f}")
    ratio = statistics.median(slow / fast for slow, fast in times)
    print(
        f"{count:,} images, {torch.get_num_threads()} threads, median of n = {given.rounds}: {ratio:.1f} (target: 30)"
    )


if __name__ == "__main__":
    main()
