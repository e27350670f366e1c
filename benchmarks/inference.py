"""Latency of a prediction: torch, torch.compile and onnxruntime, for one image and for a batch of 64.

    python benchmarks/inference.py [MODEL ...]

Every round runs all of them in turn, so that other load affects all of them equally. The table shows the medians over
the rounds of the wall time and of the CPU time, and the median of the rounds' ratios of the CPU time against eager
torch. On an idle machine both times are the same with one thread (OMP_NUM_THREADS=1); on a busy one the wall time also
counts what others do. All take the same images of 32x32 pixels, which torch gets normalised and in channels-last
layout, as `tembed evaluate` does. The weights are random.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.models.registry import create_model
from tembed.trained.onnx_check import quiet_session
from tembed.trained.onnx_file import to_onnx

MODELS = ("rn26-embed", "rn26", "rn20 perturbed", "dn100-embed-cat")
"""Networks, and after a space the maximizer if it is not BN-ReLU."""
BATCHES = (1, 64)
ROUNDS = 7
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

Call = Callable[[], object]


class Times(NamedTuple):
    """Mean seconds of a call on the wall's clock and on the CPU's."""

    wall: float
    cpu: float


def timed(call: Call) -> Times:
    """Short calls are repeated for 0.3 seconds."""
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.3 or not count:
        call()
        count += 1
    return Times((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def ways(model: nn.Module, images: Tensor, file: Path) -> dict[str, Call]:
    normalised = ((images - 0.5) / 0.25).contiguous(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = torch.compile(model, dynamic=False)
    session, array = quiet_session(file.read_bytes()), images.numpy()

    def eager() -> None:
        with torch.inference_mode():
            model(normalised)

    def compiled_call() -> None:
        with torch.inference_mode():
            compiled(normalised)

    return {"eager": eager, "compiled": compiled_call, "onnx": lambda: session.run(None, {"images": array})}


def measure(name: str, batch: int, folder: Path) -> dict[str, list[Times]]:
    model_name, _, maximizer = name.partition(" ")
    torch.manual_seed(0)
    options: dict[str, Any] = {"maximizer": maximizer} if maximizer else {}
    model = create_model(model_name, 10, **options).eval()
    file = folder / f"{name.replace(' ', '-')}.onnx"
    if not file.exists():
        to_onnx(model, file, mean=MEAN, std=STD)
    calls = ways(model, torch.rand(batch, 3, 32, 32), file)
    for call in calls.values():
        call()
        call()
    times: dict[str, list[Times]] = {way: [] for way in calls}
    for done in range(ROUNDS):
        print(f"\r{name}, batch {batch}: round {done + 1} of {ROUNDS}   ", end="", flush=True, file=sys.stderr)
        for way, call in calls.items():
            times[way].append(timed(call))
    print("\r" + " " * 60, end="\r", file=sys.stderr)
    torch.compiler.reset()
    return times


def main() -> None:
    print(f"{torch.get_num_threads()} threads, median of {ROUNDS} interleaved rounds\n")
    print("| network | batch | way | ms | CPU ms | CPU ms per image | against eager |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or MODELS:
            for batch in BATCHES:
                times = measure(name, batch, Path(folder))
                for way, found in times.items():
                    wall, cpu = (1e3 * statistics.median(values) for values in zip(*found, strict=True))
                    pairs = zip(times["eager"], found, strict=True)
                    ratio = statistics.median(eager.cpu / ours.cpu for eager, ours in pairs)
                    cells = f"{wall:.2f} | {cpu:.2f} | {cpu / batch:.2f} | {ratio:.2f}"
                    print(f"| {name} | {batch} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
