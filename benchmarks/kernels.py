"""What the fused BN-ReLU is worth in a training step: steps with torch's operations against steps with the kernel.

    python benchmarks/kernels.py [--bfloat16] [MODEL ...]

--bfloat16 computes under autocast, for processors with units for it. Both ways share everything else: channels-last
maps, fused Adam, the same batch of 64 images. Their steps alternate, so that other load affects both equally. A ratio
is the median over the rounds of the time without the kernel by the time with it: above 1, the kernel saves time.
Needs an idle machine, and no dataset.
"""

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from unittest import mock

import torch

from tembed.kernels import fused_bn_relu
from tembed.lab.training.environment import keep_freed_memory
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.starting import build
from tembed.loss import EmbeddingLoss
from tembed.models.network import Output

MODELS = ("rn26-embed", "wrn16", "dn100")
BATCH = 64
ROUNDS = 25


def step_of(name: str, bfloat16: bool) -> Callable[[], None]:
    recipe = Recipe.paper(name, "parts", batch_size=BATCH).complete()
    model = build(recipe, classes=10, side=32)
    optimizer = make_optimizer(recipe, model)
    loss = EmbeddingLoss(0.5 if name.endswith("-embed") else 0.0)
    images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits, scores = model(images)
        loss(Output(logits.float(), None if scores is None else scores.float()), labels).backward()
        optimizer.step()

    return step


def without_kernel() -> AbstractContextManager:
    return mock.patch.object(fused_bn_relu, "load", return_value=None)


def measure(name: str, bfloat16: bool) -> tuple[list[float], list[float]]:
    """Seconds of a step in each round, without and with the kernel."""
    step = step_of(name, bfloat16)
    without: list[float] = []
    with_kernel: list[float] = []
    ways = ((without_kernel, without), (nullcontext, with_kernel))
    for number in range(ROUNDS + 2):
        print(f"\r{name}: round {number + 1} of {ROUNDS + 2}", end="", flush=True, file=sys.stderr)
        for context, times in ways if number % 2 else ways[::-1]:
            with context():
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
    print("\r" + " " * 60, end="\r", file=sys.stderr)
    return without[2:], with_kernel[2:]  # the first two rounds warm up


def main() -> None:
    keep_freed_memory()
    names = sys.argv[1:]
    bfloat16 = "--bfloat16" in names
    if bfloat16:
        names.remove("--bfloat16")
    form = "bfloat16" if bfloat16 else "float32"
    print(f"batches of {BATCH}, {form}, {torch.get_num_threads()} threads, {ROUNDS} interleaved rounds\n")
    print("| model | images/s without | with the kernel | ratio | its quartiles |")
    print("|---|---|---|---|---|")
    for name in names or MODELS:
        without, with_kernel = measure(name, bfloat16)
        low, middle, high = statistics.quantiles([a / b for a, b in zip(without, with_kernel, strict=True)], n=4)
        speeds = " | ".join(f"{BATCH / statistics.median(times):.0f}" for times in (without, with_kernel))
        print(f"| {name} | {speeds} | {middle:.2f} | {low:.2f} to {high:.2f} |", flush=True)


if __name__ == "__main__":
    main()
