"""Time and memory of the whole analysis of CIFAR-10 at the paper's size: 51,200 points, claims with all controls, five
maps, all figures.

    python benchmarks/analysis.py [--images-per-class 80] [--out DIR]

Needs CIFAR-10 (`tembed data get cifar10`) and the shipped weights. The folder must be new, so that no cache is used.
Set the number of threads with OMP_NUM_THREADS. Limits: 15 minutes on 2 cores and 3 GB.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch

from tembed.common.progress import Progress
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.report.analysis_report import write_analysis


class Stages(Progress):
    """Records the first and the last update of each stage."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.spans: dict[str, tuple[float, float]] = {}

    def update(self, task: str, done: float, total: float, **numbers: object) -> None:
        now = time.perf_counter() - self.start
        self.spans[task] = (self.spans.get(task, (now, now))[0], now)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images-per-class", type=int, default=80)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder)
        if any(out.glob("cache/*")):
            raise SystemExit(f"{out} already has an analysis: give a new folder")
        stages = Stages()
        found = analyze(
            "rn26-embed/cifar10",
            baseline="rn26/cifar10",
            images_per_class=given.images_per_class,
            cache=out / "cache",
            progress=stages,
        )
        write_analysis(found, out)
        wall = time.perf_counter() - stages.start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    processor = time.process_time()
    print(f"{len(found.features.image_of):,} points, {torch.get_num_threads()} threads, n = 1\n")
    for what, (first, last) in stages.spans.items():
        print(f"{what:32}{first:8.1f} s to {last:8.1f} s")
    print(f"\nwhole analysis: {wall / 60:.1f} minutes (limit: 15)")
    print(f"processor time: {processor / 60:.1f} minutes")
    print(f"peak memory: {peak:.2f} GB (limit: 3)")


if __name__ == "__main__":
    main()
