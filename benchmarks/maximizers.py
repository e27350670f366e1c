"""Soft maximizers side by side: time, memory and error at the activation shapes of RN20 (§4.1).

    python benchmarks/maximizers.py            # a few minutes on two cores, mostly for sample(600)
    python benchmarks/maximizers.py --rounds 1

Every round times every method once at every shape, so that other load affects all of them equally. The table shows the
medians. The errors are the largest deviations of value and gradient from the integral in float64. The last lines
time a training step of RN20 with each maximizer after its six 3x3 convolutions.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from memory import peak_memory
from torch import Tensor

from tembed.loss import EmbeddingLoss
from tembed.maximizers import entropic, perturbed
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.registry import create_model

SHAPES = ((32, 32), (64, 16), (128, 8))  # kernels, side of the map
METHODS = ("bn-relu", "entropic", "exact", "sample(600)")
COLUMNS = "batch, kernels, map, method, ms, x entropic, sample / this, memory x input, value error, gradient error"
EPOCH = 39_000  # training images in the paper's split

Case = tuple[int, int, int]  # batch, kernels, side


def method(name: str, kernels: int) -> Callable[[Tensor], Tensor]:
    if name == "bn-relu":
        return BNReLU(kernels)
    if name == "entropic":
        return entropic
    if name == "exact":
        return perturbed
    return lambda a: perturbed(a, method="sample")


def forward_backward(f: Callable[[Tensor], Tensor], a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the gradient for ``a``."""
    p = f(a)
    (grad,) = torch.autograd.grad(p, a, g)
    return p.detach(), grad


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """Mean time of a call. Short calls are repeated for a tenth of a second."""
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < 0.1 or not count:
        call(*arguments)
        count += 1
    return spent / count


def errors(f: Callable[[Tensor], Tensor], a: Tensor, g: Tensor) -> tuple[float, float]:
    """Largest errors of the value and the gradient of one image, against float64."""
    a, g = a.detach()[:1].clone().requires_grad_(), g[:1]
    exact = forward_backward(perturbed, a.detach().double().requires_grad_(), g.double())
    pairs = zip(forward_backward(f, a, g), exact, strict=True)
    value, gradient = ((ours - theirs).abs().max().item() for ours, theirs in pairs)
    return value, gradient


def compare(rounds: int) -> None:
    """Print the table in Markdown."""
    inputs: dict[Case, tuple[Tensor, Tensor]] = {}
    for batch in (8, 32):
        for kernels, side in SHAPES:
            a = torch.randn(batch, kernels, side, side, generator=torch.Generator().manual_seed(kernels))
            a = a.contiguous(memory_format=torch.channels_last).requires_grad_()
            inputs[batch, kernels, side] = a, torch.randn_like(a)
            for name in METHODS[:3]:  # compile the kernels and warm up
                forward_backward(method(name, kernels), *inputs[batch, kernels, side])
    times: dict[tuple[Case, str], list[float]] = {(case, name): [] for case in inputs for name in METHODS}
    for round_ in range(rounds):
        for case, (a, g) in inputs.items():
            for name in METHODS:
                times[case, name].append(seconds(forward_backward, method(name, case[1]), a, g))
            print(f"round {round_ + 1} of {rounds}: batch {case[0]}, {case[1]} kernels done", flush=True)
    print(f"\nforward + backward, median of {rounds} interleaved rounds, {torch.get_num_threads()} threads\n")
    print(f"| {COLUMNS.replace(', ', ' | ')} |\n|{'---|' * 10}")
    for case, (a, g) in inputs.items():
        batch, kernels, side = case
        medians = {name: statistics.median(times[case, name]) for name in METHODS}
        for name in METHODS:
            f = method(name, kernels)
            cells = [
                f"{batch} | {kernels} | {side}x{side} | {name} | {1e3 * medians[name]:.2f}",
                f"{medians[name] / medians['entropic']:.1f}",
                f"{medians['sample(600)'] / medians[name]:.0f}",
                f"{peak_memory(forward_backward, f, a, g) / a.nbytes:.1f}",
                "- | -" if name in METHODS[:2] else "{:.0e} | {:.0e}".format(*errors(f, a, g)),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def training_step(maximizer: str, batch: int) -> Callable[[], None]:
    """One step of Adam on RN20 with this maximizer after its six 3x3 convolutions."""
    model = create_model("rn20", maximizer=maximizer).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        EmbeddingLoss(0)(model(images), labels).backward()
        optimizer.step()

    return step


def train_rn20(rounds: int) -> None:
    """Print the time of a training step and of an epoch with each maximizer."""
    for batch in (8, 32):
        steps = {name: training_step(name, batch) for name in ("bn-relu", "entropic", "perturbed")}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(2 * rounds + 1):
            for name, step in steps.items():
                times[name].append(seconds(step))
        for name in steps:
            each = statistics.median(times[name][1:])
            minutes = each * EPOCH / batch / 60
            print(f"rn20, batch {batch}, {name}: {1e3 * each:.0f} ms per step, {minutes:.1f} minutes per epoch")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time, memory and error of the soft maximizers.")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; the table shows the medians")
    rounds = parser.parse_args().rounds
    compare(rounds)
    print()
    train_rn20(rounds)
