"""Every network as an ONNX file: how far onnxruntime is from torch, and what the file costs.

    python benchmarks/export.py [NAME ...] [--side 32|84]     # all of them: about ten minutes on two idle cores

Each network of `tembed.list_models` is exported in both layouts of appendix A (for 32 and for 84 pixels), and rn20
with every maximizer that can be exported. The weights are random, with statistics from two training batches.
``error`` is the largest difference from torch of any output, divided by ``max(1, largest value)``, over the
batch and image sizes of `tembed.trained.onnx_check.shapes` and four random ones. It must stay below 1e-4. ``CPU s`` is
the time to export and to compare.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tembed.models.registry import create_model, list_models
from tembed.trained.onnx_check import TOLERANCE, difference, quiet_session
from tembed.trained.onnx_file import NamedOutputs, to_onnx

MAXIMIZERS = ("entropic", "perturbed", "one-hot")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SHAPES = 4
SIDES = (32, 84)


def cases() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Name, side of the images, options."""
    names = sorted(list_models(), key=lambda name: name.startswith("dn"))  # the slow ones last
    for side in SIDES:
        for name in names:
            yield name, side, {}
        for maximizer in MAXIMIZERS if side == 32 else ():
            yield "rn20", side, {"maximizer": maximizer}


def with_statistics(name: str, side: int, options: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    model = create_model(name, 10, side, **options).train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for _ in range(2):
            model(torch.randn(8, 3, side, side))
    return model.eval()


def random_error(model: torch.nn.Module, content: bytes, side: int) -> float:
    """The largest error over random batch sizes and sides from a half to five quarters of the usual one."""
    draw, session, network = random.Random(0), quiet_session(content), NamedOutputs(model, MEAN, STD)
    largest = 0.0
    for number in range(SHAPES):
        shape = (draw.randint(1, 4), 3, *(draw.randint(side // 2, side * 5 // 4) for _ in range(2)))
        images = torch.rand(shape, generator=torch.Generator().manual_seed(number))
        with torch.no_grad():
            largest = max(largest, difference(session, images, network(images)))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description="Every network as an ONNX file, compared with torch.")
    parser.add_argument("names", nargs="*", help="networks; by default all")
    parser.add_argument("--side", type=int, choices=SIDES, help="only this side of the images")
    wanted = parser.parse_args()
    print("| network | side | maximizer | outputs | free | nodes | MB | CPU s | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, side, options in cases():
            if (wanted.names and name not in wanted.names) or wanted.side not in (None, side):
                continue
            model, start = with_statistics(name, side, options), time.process_time()
            made = to_onnx(model, Path(folder) / "x.onnx", mean=MEAN, std=STD)
            seconds = time.process_time() - start
            error = max(made.difference, random_error(model, made.path.read_bytes(), side))
            worst = max(worst, error)
            cells = [name, side, options.get("maximizer", "bn-relu"), ", ".join(made.outputs), ", ".join(made.free)]
            cells += [made.nodes, f"{made.size / 1e6:.1f}", f"{seconds:.0f}", f"{error:.1e}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\nlargest error {worst:.1e} (tolerance {TOLERANCE:.0e})")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
