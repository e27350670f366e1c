"""Images per second of a training step: a plain PyTorch loop, ours, and ours compiled.

    python benchmarks/training.py [MODEL ...]

The plain loop is what a typical script does: maps in NCHW, no fused operations, unfused Adam, and images that are
padded, cropped, flipped and normalised one at a time. Ours is the step of `tembed train` with the paper's Adam. The
table also shows what share of the machine's matrix multiplication rate each of them reaches, where a step counts as
three times the convolutions and linear maps of the forward pass. At the end, steps of rn26 and of rn26-embed alternate,
which gives the overhead of the block. Every round runs all of them in turn, so that other load affects all of them
equally. The numbers are medians over the rounds. Needs no dataset on disk, but an idle machine, on which `tembed train`
uses OMP_WAIT_POLICY=ACTIVE.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from loader import MEAN, STD, PerImage
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from tembed.kernels import fused_bn_relu as bn_relu
from tembed.lab.data.batches import training_batches
from tembed.lab.data.parts.world import generate
from tembed.lab.training.compiling import compile_loss
from tembed.lab.training.environment import keep_freed_memory
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.starting import build
from tembed.lab.training.step_measures import MeasuredLoss, measured_loss
from tembed.loss import EmbeddingLoss
from tembed.models.registry import create_model

MODELS = ("rn26", "rn26-embed", "wrn16", "dn100")
BATCH = 64
STEPS = 3  # of each, per round
ROUNDS = 5
PAIRS = 150
SIDE = 1024  # of the multiplied matrices

Step = Callable[[], object]


def step_of(measure: MeasuredLoss, optimizer: torch.optim.Optimizer, batches: Iterator) -> Step:
    def step() -> None:
        images, labels = next(batches)
        optimizer.zero_grad()
        measure(images, labels).loss.backward()
        optimizer.step()

    return step


def plain_step(name: str, weight: float) -> Step:
    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from DataLoader(PerImage(IMAGES), BATCH, shuffle=True)

    model = create_model(name, num_classes=10)
    measure = measured_loss(model, EmbeddingLoss(weight))
    step = step_of(measure, torch.optim.Adam(model.parameters(), foreach=False), batches())

    def without_kernels() -> None:
        with mock.patch.object(bn_relu, "load", return_value=None):
            step()

    return without_kernels


def our_step(name: str, weight: float, compile: bool = False) -> Step:
    ours = training_batches(IMAGES, BATCH, mean=MEAN, std=STD)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for epoch in range(1 << 20):
            yield from ours.epoch(epoch)

    recipe = Recipe.paper(name, "parts", batch_size=BATCH).complete()
    model = build(recipe, classes=10, side=32)
    optimizer = make_optimizer(recipe, model)
    measure = measured_loss(model, EmbeddingLoss(weight))
    if compile:
        measure = compile_loss(measure, BATCH, torch.device("cpu"))
    return step_of(measure, optimizer, batches())


def seconds(work: Step, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def forward_flops(name: str) -> int:
    """Floating-point operations of the convolutions and linear maps for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        create_model(name, num_classes=10).eval()(torch.zeros(1, 3, 32, 32))
    return counter.get_total_flops()


def measure(name: str) -> dict[str, list[float]]:
    """Seconds of a step, and of a matrix multiplication, in each round."""
    weight = 0.5 if name.endswith("-embed") else 0.0
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    ways: dict[str, Step] = {
        "plain": plain_step(name, weight),
        "ours": our_step(name, weight),
        "ours, compiled": our_step(name, weight, compile=True),
    }
    for way, step in ways.items():
        print(f"\r{name}: warming up {way:20}", end="", flush=True, file=sys.stderr)
        seconds(step, 2)
    times: dict[str, list[float]] = {way: [] for way in (*ways, "multiplication")}
    for done in range(ROUNDS):
        print(f"\r{name}: round {done + 1} of {ROUNDS:20}", end="", flush=True, file=sys.stderr)
        for way, step in ways.items():
            times[way].append(seconds(step, STEPS))
        times["multiplication"].append(min(seconds(lambda: a @ b, 1) for _ in range(10)))
    print("\r" + " " * 60, end="\r", file=sys.stderr)
    return times


def overhead() -> float:
    """The share by which the block lengthens a step of rn26: the median over pairs of consecutive steps."""
    without, with_block = our_step("rn26", 0.0), our_step("rn26-embed", 0.5)
    pairs = []
    for number in range(PAIRS + 2):
        print(f"\rthe block: pair {number + 1} of {PAIRS + 2}", end="", flush=True, file=sys.stderr)
        order = (without, with_block) if number % 2 else (with_block, without)
        times = {step: seconds(step, 1) for step in order}
        pairs.append(times[with_block] / times[without] - 1)
    print("\r" + " " * 60, end="\r", file=sys.stderr)
    return statistics.median(pairs[2:])  # the first two warm up


def main() -> None:
    names = sys.argv[1:] or MODELS
    keep_freed_memory()
    print(f"batches of {BATCH}, {torch.get_num_threads()} threads, median of {ROUNDS} interleaved rounds\n")
    print("| model | way | images/s | against plain | GFLOP/s | share of matrix multiplication |")
    print("|---|---|---|---|---|---|")
    for name in names:
        times, flops = measure(name), 3 * forward_flops(name)
        rate = 2 * SIDE**3 / statistics.median(times.pop("multiplication")) / 1e9
        for way, values in times.items():
            speed = BATCH / statistics.median(values)
            ratio = statistics.median(a / b for a, b in zip(times["plain"], values, strict=True))
            reached = speed * flops / 1e9
            print(
                f"| {name} | {way} | {speed:.0f} | {ratio:.2f} | {reached:.0f} | {reached / rate:.0%} of {rate:.0f} |",
                flush=True,
            )
    if "rn26-embed" in names:
        print(f"\nthe block's overhead, {PAIRS} pairs: {overhead():.1%} of a step of rn26 (target: 4 %)")


IMAGES = generate(BATCH * 8)

if __name__ == "__main__":
    main()
