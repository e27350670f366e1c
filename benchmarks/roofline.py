"""How long Table 1 would take on GPUs: every operation of a training step counted, and a roofline for two GPUs.

    python benchmarks/roofline.py            # both tables of docs/cluster.md, in about a minute
    python benchmarks/roofline.py rn26       # the counts of one network

Nothing is computed: the step of each network runs on torch's meta device, which has shapes and no numbers. For each
operation we count its floating-point operations (torch's own formulas; only convolutions and products count) and the
bytes of its inputs and outputs. An operation takes the longest of three times: its launch, its arithmetic, and its
traffic. That ignores caches, which make the traffic smaller, and the choice of algorithms, which can make it larger.
"""

import heapq
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tembed.lab.data.catalogue import dataset
from tembed.lab.training.recipe import Recipe
from tembed.loss import EmbeddingLoss
from tembed.models.registry import create_model
from tembed.paper import DATASETS, LABELS

SEEDS, EPOCHS, TRAINING_IMAGES, VALIDATION_IMAGES = 3, 200, 39_000, 9_000
ADAM_PASSES = 7
"""A fused step of Adam reads weight, gradient and two moments, and writes all but the gradient."""


class Operation(NamedTuple):
    """One launch."""

    flops: float
    bytes: float


class Counter(TorchDispatchMode):
    """Collects the operations that run inside it. Views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        if not operation.is_view and not str(operation).startswith(("aten.empty", "aten.detach", "aten._unsafe_view")):
            tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)]
            count = flop_registry.get(operation._overloadpacket)
            flops = count(*args, **(kwargs or {}), out_val=result) if count else 0
            self.operations.append(Operation(flops, sum(x.nbytes for x in tensors)))
        return result


class Counts(NamedTuple):
    """Of a network: a training step of the paper (forward, loss, backward, Adam), and a batch of validation."""

    step: list[Operation]
    validation: list[Operation]


def count(model: str, data: str) -> Counts:
    recipe = Recipe.paper(model, data).complete()
    source = dataset(data)
    assert source.num_classes is not None
    assert source.side is not None
    with torch.device("meta"):
        network = create_model(model, num_classes=source.num_classes, input_size=source.side)
        images = torch.empty(recipe.batch_size, 3, source.side, source.side)
        labels = torch.empty(recipe.batch_size, dtype=torch.long)
        loss = EmbeddingLoss(recipe.weight or 0.0)
        with Counter() as step:
            loss(network(images), labels).backward()
        network.eval()
        with Counter() as validation, torch.no_grad():
            loss(network(images), labels)
    adam = Operation(0, ADAM_PASSES * sum(weight.nbytes for weight in network.parameters()))
    return Counts([*step.operations, adam], validation.operations)


@dataclass(frozen=True)
class Machine:
    """A GPU's rates by its data sheet, and what share of them and which launch time we assume."""

    name: str
    flops: float
    """per second, by dense matrix units"""
    bandwidth: float
    """bytes per second"""
    launch: float
    """seconds from one launch to the next, at least"""
    shrink: float = 1.0
    """size of a number by that in float32"""
    arithmetic: float = 0.25
    """assumed share of the flops: the convolutions are small"""
    traffic: float = 0.7
    """assumed share of the bandwidth"""

    def seconds(self, operations: list[Operation]) -> float:
        return sum(
            max(
                self.launch,
                operation.flops / (self.arithmetic * self.flops),
                self.shrink * operation.bytes / (self.traffic * self.bandwidth),
            )
            for operation in operations
        )


EAGER, GRAPH = 6e-6, 1.5e-6
MACHINES = (
    Machine("4090, eager, TF32", 82.6e12, 1.008e12, EAGER),
    Machine("4090, CUDA graphs, bf16", 165.2e12, 1.008e12, GRAPH, shrink=0.5),
    Machine("H100, eager, TF32", 494.7e12, 3.35e12, EAGER),
    Machine("H100, CUDA graphs, bf16", 989.4e12, 3.35e12, GRAPH, shrink=0.5),
)
GPUS = (1, 8, 64)


def makespan(runs: list[float], gpus: int) -> float:
    """When the last run ends if each GPU takes one run at a time, the longest first."""
    busy = [0.0] * gpus
    for run in sorted(runs, reverse=True):
        heapq.heapreplace(busy, busy[0] + run)
    return max(busy)


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def count_all(models: list[str]) -> dict[tuple[str, str], Counts]:
    """The operations of each network on each dataset. Prints the table of its training step."""
    print(row("network", "data", "launches", "GFLOP", "GB", "GFLOP per GB"), "|---|---|---|---|---|---|", sep="\n")
    found = {}
    for data in DATASETS:
        for model in models:
            found[model, data] = counts = count(model, data)
            flops, moved = (sum(each) / 1e9 for each in zip(*counts.step, strict=True))
            numbers = (len(counts.step), f"{flops:.1f}", f"{moved:.2f}", f"{flops / moved:.1f}")
            print(row(model, data, *numbers), flush=True)
    return found


def main() -> None:
    found = count_all(sys.argv[1:] or list(LABELS))
    batch = Recipe.paper("rn26", "cifar10").batch_size
    steps, batches = (EPOCHS * -(-images // batch) for images in (TRAINING_IMAGES, VALIDATION_IMAGES))
    runs = SEEDS * len(found)
    training = SEEDS * steps * sum(each.flops for counts in found.values() for each in counts.step)
    validation = SEEDS * batches * sum(each.flops for counts in found.values() for each in counts.validation)
    print(
        f"\n{runs} runs of {EPOCHS} epochs: {runs * steps / 1e6:.1f} million steps, {training / 1e18:.2f} EFLOP, and "
        f"{validation / 1e18:.2f} EFLOP for validation\n"
    )
    print(row("hours", *(f"{gpus} GPUs" if gpus > 1 else "1 GPU" for gpus in GPUS), "longest run", "DN100 at 84 px"))
    print("|---|---|---|---|---|---|")
    for machine in MACHINES:
        hours = {
            cell: (steps * machine.seconds(counts.step) + batches * machine.seconds(counts.validation)) / 3600
            for cell, counts in found.items()
        }
        each = SEEDS * list(hours.values())
        large = sum(hours[model, data] for model, data in found if (model[:5], data) == ("dn100", "mini-imagenet"))
        times = [f"{makespan(each, gpus):.1f}" for gpus in GPUS]
        print(row(machine.name, *times, f"{max(each):.2f}", f"{large / sum(hours.values()):.0%} of the time"))


if __name__ == "__main__":
    main()
