"""What each C kernel is worth in a training step: the step without kernels against the step with one of them.

    python benchmarks/kernels.py [MODEL ...]

All ways share everything else: channels-last maps, fused Adam, the same batch of 64 images. The steps of all ways
alternate, so that other load affects all of them equally. A ratio is the median over the rounds of the plain step's
time by the time of the step with the kernel: above 1, the kernel saves time. Needs an idle machine, and no dataset.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch

from tembed.kernels import conv3x3, dense_stage, fused_bn_relu
from tembed.lab.training.environment import keep_freed_memory
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.starting import build
from tembed.loss import EmbeddingLoss

MODELS = ("rn26-embed", "wrn16", "dn100")
BATCH = 64
ROUNDS = 15

OFF: dict[str, Callable] = {
    "conv_weight": lambda: mock.patch.object(conv3x3, "load", return_value=None),
    "bn_relu": lambda: mock.patch.object(fused_bn_relu, "load", return_value=None),
    "dense_stage": lambda: mock.patch.object(dense_stage, "has_kernel", return_value=False),
}
WAYS = {
    "none": (),
    "conv_weight": ("conv_weight",),
    "bn_relu": ("bn_relu",),
    "bn_relu, dense_stage": ("bn_relu", "dense_stage"),
    "all": tuple(OFF),
}


@contextmanager
def kernels(*names: str) -> Iterator[None]:
    """Switch all other kernels off."""
    with ExitStack() as stack:
        for name, off in OFF.items():
            if name not in names:
                stack.enter_context(off())
        yield


def step_of(name: str) -> Callable[[], None]:
    recipe = Recipe.paper(name, "parts", batch_size=BATCH).complete()
    model = build(recipe, classes=10, side=32)
    optimizer = make_optimizer(recipe, model)
    loss = EmbeddingLoss(0.5 if name.endswith("-embed") else 0.0)
    images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return step


def measure(name: str) -> dict[str, list[float]]:
    """Seconds of a step in each round."""
    step = step_of(name)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS + 2):
        print(f"\r{name}: round {number + 1} of {ROUNDS + 2}", end="", flush=True, file=sys.stderr)
        order = list(WAYS)[:: 1 if number % 2 else -1]
        for way in order:
            with kernels(*WAYS[way]):
                start = time.perf_counter()
                step()
                times[way].append(time.perf_counter() - start)
    print("\r" + " " * 60, end="\r", file=sys.stderr)
    return {way: seconds[2:] for way, seconds in times.items()}  # the first two rounds warm up


def main() -> None:
    keep_freed_memory()
    print(f"batches of {BATCH}, {torch.get_num_threads()} threads, {ROUNDS} interleaved rounds\n")
    print("| model | kernels | images/s | against none | quartiles |")
    print("|---|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        times = measure(name)
        for way, seconds in times.items():
            ratios = [none / own for none, own in zip(times["none"], seconds, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            speed = BATCH / statistics.median(seconds)
            print(f"| {name} | {way} | {speed:.0f} | {middle:.2f} | {low:.2f} to {high:.2f} |", flush=True)


if __name__ == "__main__":
    main()
