"""Five minutes on your GPU: prints a block of text that says how fast this package is there. Please send it in.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --seconds 5 --networks rn26-embed     # to try it without a GPU

No dataset is needed. Whatever is compared alternates in one run, so that other load affects all of it equally; the
ratios are medians over the rounds. Compiling takes most of the time, and is left out on a CPU, where it takes minutes.
`docs/gpu.md` says what has been checked without a GPU.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from tembed.common.errors import first_line
from tembed.kernels import exact_p2
from tembed.lab.training.compiling import compile_loss
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.starting import build
from tembed.lab.training.step_measures import measured_loss
from tembed.loss import EmbeddingLoss
from tembed.maximizers import perturbed

NETWORKS = ("rn26-embed", "wrn16", "dn100")
SIDE, CLASSES, IMAGES = 32, 10, 8192
P2_SHAPES = ((32, 32), (64, 16), (128, 8))  # kernels, side of the map: those of RN20
BURST = 0.2
"""Seconds of each way in a round, at least."""

Batch = tuple[Tensor, Tensor]
Way = Callable[[], object]


class Timing(NamedTuple):
    """Of the calls in one round, in seconds per call."""

    total: float
    host: float
    """until the host had handed over the work; the rest of the time it waits for the device"""


class Bench:
    """The device, and how long each comparison may take."""

    def __init__(self, device: str | torch.device, seconds: float):
        self.device = torch.device(device)
        self.seconds = seconds

    def synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def time(self, way: Way, calls: int) -> Timing:
        self.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            way()
        host = time.perf_counter() - start
        self.synchronize()
        return Timing((time.perf_counter() - start) / calls, host / calls)

    def compare(self, title: str, ways: dict[str, Way]) -> dict[str, list[Timing]]:
        """Timings of each way in alternating rounds, at least two, after three calls that do not count.

        A way that fails is reported and left out, except the first.
        """
        calls: dict[str, int] = {}
        for name, way in ways.items():
            print(f"\r{title}: {name:40}", end="", flush=True, file=sys.stderr)
            try:
                self.time(way, 2)
                calls[name] = max(1, round(BURST / self.time(way, 1).total))
            except Exception as error:
                if not calls:
                    raise
                print(f"{title}, {name} failed: {type(error).__name__}: {first_line(error)}")
        timings: dict[str, list[Timing]] = {name: [] for name in calls}
        start, rounds = time.perf_counter(), 0
        while rounds < 2 or time.perf_counter() - start < self.seconds:
            for name, count in calls.items():
                timings[name].append(self.time(ways[name], count))
            rounds += 1
        print("\r" + " " * 70, end="\r", file=sys.stderr)
        return timings

    def peak_memory(self, way: Way) -> str:
        """MB that a call needs beyond what is allocated before it."""
        if self.device.type != "cuda":
            return "-"
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        way()
        return f"{(torch.cuda.max_memory_allocated(self.device) - before) / 1e6:.0f}"

    def print_table(self, title: str, what: str, ways: dict[str, Way]) -> None:
        """Compare the ways with the first of them, and print a table."""
        timings = self.compare(title, ways)
        first = timings[next(iter(ways))]
        print(f"{title}: {len(first)} rounds")
        for name, each in timings.items():
            ratio = statistics.median(a.total / b.total for a, b in zip(first, each, strict=True))
            total = statistics.median(timing.total for timing in each)
            host = statistics.median(timing.host / timing.total for timing in each)
            memory = self.peak_memory(ways[name])
            print(f"  {name:22} {1 / total:9.2f} {what}  x{ratio:<7.2f} host {host:4.0%}  {memory:>6} MB")


class Training:
    """A network that trains with the paper's loss and Adam."""

    def __init__(self, bench: Bench, name: str, batch: int, *, compiled: bool = False, half: bool = False):
        recipe = Recipe.paper(name, "parts", batch_size=batch).complete()
        network = build(recipe, classes=CLASSES, side=SIDE)
        self.network = network.to(bench.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = make_optimizer(recipe, self.network)
        self.measure = measured_loss(self.network, EmbeddingLoss(recipe.weight or 0.0))
        self.precision = torch.autocast(bench.device.type, torch.bfloat16) if half else nullcontext()
        if compiled:
            self.measure = compile_loss(self.measure, batch, bench.device)

    def step(self, batch: Batch) -> Tensor:
        """The loss, on the device."""
        images, labels = batch
        self.optimizer.zero_grad()
        with self.precision:
            loss = self.measure(images, labels).loss
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step_from(self, batches: Iterator[Batch]) -> Tensor:
        return self.step(next(batches))


def fixed_batch(bench: Bench, size: int) -> Batch:
    images = torch.randn(size, 3, SIDE, SIDE, device=bench.device).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(CLASSES, (size,), device=bench.device)


def time_network(bench: Bench, name: str, size: int) -> None:
    batch = fixed_batch(bench, size)
    ways: dict[str, Way] = {}
    for way in ("eager", "bf16", "compiled", "compiled, bf16"):
        if "compiled" in way and bench.device.type == "cpu":
            continue
        training = Training(bench, name, size, compiled="compiled" in way, half="bf16" in way)
        ways[way] = partial(training.step, batch)
    bench.print_table(f"{name}, batch {size}, {SIDE} px", "steps/s", ways)


def time_waits(bench: Bench, name: str, size: int) -> None:
    """What it costs to read the loss after every step."""
    training, batch = Training(bench, name, size), fixed_batch(bench, size)
    ways: dict[str, Way] = {
        "loss never read": partial(training.step, batch),
        "loss read every step": lambda: training.step(batch).item(),
    }
    bench.print_table(f"waits, {name}, batch {size}", "steps/s", ways)


def batches_on_device(bench: Bench, size: int) -> Iterator[Batch]:
    """All images on the device as bytes; batches are made there."""
    images = torch.randint(256, (IMAGES, SIDE, SIDE, 3), dtype=torch.uint8, device=bench.device)
    labels = torch.randint(CLASSES, (IMAGES,), device=bench.device)
    while True:
        for index in torch.randperm(IMAGES, device=bench.device).split(size):
            yield images[index].permute(0, 3, 1, 2).float().div(255), labels[index]


def batches_on_host(bench: Bench, size: int, *, pinned: bool) -> Iterator[Batch]:
    """Images in the host's memory. Pinned: sent as bytes without waiting. Otherwise: as float32, pageable."""
    images = torch.randint(256, (IMAGES, SIDE, SIDE, 3), dtype=torch.uint8)
    labels = torch.randint(CLASSES, (IMAGES,))
    while True:
        for index in torch.randperm(IMAGES).split(size):
            if pinned and bench.device.type == "cuda":
                some, theirs = (x[index].pin_memory().to(bench.device, non_blocking=True) for x in (images, labels))
                yield some.permute(0, 3, 1, 2).float().div(255), theirs
            else:
                some = images[index].permute(0, 3, 1, 2).float().div(255)
                yield some.to(bench.device), labels[index].to(bench.device)


def time_data(bench: Bench, name: str, size: int) -> None:
    training = Training(bench, name, size)
    sources = {"bytes on the device": batches_on_device(bench, size)}
    if bench.device.type == "cuda":
        sources["pinned bytes"] = batches_on_host(bench, size, pinned=True)
    sources["pageable float32"] = batches_on_host(bench, size, pinned=False)
    ways: dict[str, Way] = {source: partial(training.step_from, batches) for source, batches in sources.items()}
    bench.print_table(f"data, {name}, batch {size}", "steps/s", ways)


def forward_backward(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    p = perturbed(a)
    (grad,) = torch.autograd.grad(p, a, g)
    return p.detach(), grad


def by_loop(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    with mock.patch.object(exact_p2, "has_kernel", return_value=False):
        return forward_backward(a, g)


def time_p2(bench: Bench, batch: int, kernels: int, side: int) -> None:
    """Exact P2 by torch's operations and by the kernel, and the kernel's error against float64."""
    a = torch.randn(batch, kernels, side, side, device=bench.device).contiguous(memory_format=torch.channels_last)
    g = torch.randn_like(a)
    a.requires_grad_()
    ways: dict[str, Way] = {"loop": partial(by_loop, a, g)}
    if exact_p2.has_kernel(a):
        ways["kernel"] = partial(forward_backward, a, g)
        ways["kernel, bf16"] = partial(forward_backward, a.detach().bfloat16().requires_grad_(), g.bfloat16())
    bench.print_table(f"exact P2, batch {batch}, {kernels} kernels, {side}x{side}", "calls/s", ways)
    some, some_g = a.detach()[:1].requires_grad_(), g[:1]
    exact = forward_backward(some.detach().double().cpu().requires_grad_(), some_g.double().cpu())
    value, gradient = (
        (ours.cpu() - theirs).abs().max().item()
        for ours, theirs in zip(forward_backward(some, some_g), exact, strict=True)
    )
    print(f"  largest error against float64: {value:.1e} in the value, {gradient:.1e} in the gradient")


def describe(device: torch.device) -> str:
    """The device and the versions of everything that matters."""
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, sm_{properties.major}{properties.minor}"
        name += f", {torch.cuda.device_count()} in this machine, CUDA {torch.version.cuda}"
    versions = []
    for package in ("tembed", "torch", "triton", "lightning-fabric"):
        try:  # torch's own says what it was built for, such as +cu128
            versions.append(f"{package} {torch.__version__ if package == 'torch' else version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{device.type}: {name}\n{', '.join(versions)}\n{system}, {torch.get_num_threads()} CPU threads"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How fast is tembed on your GPU?")
    parser.add_argument("--device", help="cuda, mps or cpu; default: the GPU")
    parser.add_argument("--seconds", type=float, default=90, help="time to measure, without warming up and compiling")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME")
    parser.add_argument("--batch", type=int, default=32, help="images per step; the paper's is 32")
    options = parser.parse_args(arguments)
    device = options.device or torch.accelerator.current_accelerator()
    if device is None:
        raise SystemExit(
            "Torch finds no GPU here, or is its CPU build. To try this script without one: "
            "python benchmarks/gpu.py --device cpu --seconds 5 --networks rn26-embed"
        )
    first, size = options.networks[0], options.batch
    sections: list[partial[None]] = [partial(time_network, name=name, size=size) for name in options.networks]
    sections += [partial(time_waits, name=first, size=size), partial(time_data, name=first, size=size)]
    sections += [partial(time_p2, batch=4 * size, kernels=kernels, side=side) for kernels, side in P2_SHAPES]
    bench = Bench(device, options.seconds / len(sections))
    print(f"----- tembed on a device, {time.strftime('%Y-%m-%d')} -----\n{describe(bench.device)}")
    print("rate, factor against the first line, share of the time until the host is done, memory\n")
    for section in sections:
        try:
            section(bench)
        except Exception as error:  # the rest is worth having, and so is the error
            print(f"{section.func.__name__} {section.keywords} failed: {type(error).__name__}: {first_line(error)}")
    print("----- end -----")


if __name__ == "__main__":
    main()
