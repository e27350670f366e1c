"""Speed of `tembed predict` as a share of the network's own speed on images that are already in memory.

    python benchmarks/predict.py RUN FOLDER [--images 1000] [--rounds 3]

FOLDER has image files; they are repeated if there are too few. Rounds alternate, and the ratio is that of the medians.
The ratio of processor times is what remains if all cores are busy, and hardly depends on other processes. Set the
number of threads with OMP_NUM_THREADS. Limit: 0.7.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path

import torch

from tembed.images.pictures import find_files
from tembed.trained.predicting import BATCH, each_prediction
from tembed.trained.weights_file import load as load_network


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    network = load_network(given.run)
    files = list(itertools.islice(itertools.cycle(find_files([given.folder])), given.images))
    side = network.description.input_size
    batch = torch.randn(BATCH, 3, side, side).contiguous(memory_format=torch.channels_last)
    alone: list[float] = []
    predicted: list[float] = []
    work = []
    for _ in range(given.rounds + 1):
        start, cpu = time.perf_counter(), time.process_time()
        with torch.no_grad():
            for _ in range(given.images // BATCH):
                network(batch)
        middle, cpu_middle = time.perf_counter(), time.process_time()
        done = sum(1 for _ in each_prediction(network, files))
        alone.append(given.images // BATCH * BATCH / (middle - start))
        predicted.append(done / (time.perf_counter() - middle))
        work.append((cpu_middle - cpu) / (given.images // BATCH * BATCH) * done / (time.process_time() - cpu_middle))
    own, whole = (statistics.median(speeds[1:]) for speeds in (alone, predicted))  # the first round is a warm-up
    print(f"{network.description.model}, {side}x{side}, {torch.get_num_threads()} threads, n = {given.rounds}")
    print(f"network alone: {own:.0f} images/s; files: {whole:.0f} images/s; ratio {whole / own:.2f} (limit: 0.7)")
    print(f"ratio of processor times: {statistics.median(work[1:]):.2f}")


if __name__ == "__main__":
    main()
