"""Training from the mapped file and from memory: the time of a step, and the memory of the process.

    python benchmarks/mapped.py

Stores 60,000 random images of 84 px (1.27 GB) in a temporary folder. One process then loads them, computes their mean
and deviation, and goes through the batches of a whole epoch, as training does; it prints its memory beyond what torch
takes. Pages of the mapped file are part of RSS, and the system can take them back at any time; anonymous memory
(RssAnon) is what the process itself holds. Another process makes batches from the mapped file and, in turn, from a
copy in memory: the same bits, and the median times of both. The rest of a step is the same and is timed once a round,
because on a busy machine its noise is larger than the difference. Takes some minutes and 1.3 GB of disk.
"""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

COUNT, SIDE, BATCH, CLASSES = 60_000, 84, 32, 100
ROUNDS, BATCHES, MODEL = 5, 50, "rn26-embed"


def store_random(root: Path) -> None:
    """Store random images as the dataset ``random``, chunk by chunk."""
    from tembed.lab.data.readers.reading import Chunk, Reading
    from tembed.lab.data.store import store

    def chunks() -> Iterator[Chunk]:
        dice = np.random.default_rng(0)
        for start in range(0, COUNT, 1000):
            images = dice.integers(0, 256, (1000, SIDE, SIDE, 3), np.uint8)
            yield Chunk(images, np.arange(start, start + 1000) % CLASSES, np.zeros(1000, np.uint8))

    store(root, "random", Reading("random", tuple(f"{k:03}" for k in range(CLASSES)), chunks()), {})


def resident() -> dict[str, float]:
    """Resident memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM", "RssAnon")}


def show_memory(root: Path) -> None:
    """An epoch of batches from the mapped file."""
    import torch

    from tembed.lab.data.batches import training_batches
    from tembed.lab.data.loading import load

    torch.randn(64, 64).matmul(torch.randn(64, 64))
    before = resident()
    splits = load("random", root=root)
    batches = training_batches(splits.train, BATCH, mean=splits.mean, std=splits.std)
    anonymous = 0.0
    for _ in batches.epoch(0):
        anonymous = max(anonymous, resident()["RssAnon"])
    after = resident()
    data = COUNT * SIDE * SIDE * 3 / 1e6
    print(f"{COUNT:,} images of {SIDE} px: {data:,.0f} MB of pixels; torch alone: {before['VmRSS']:,.0f} MB of RSS")
    print(f"  beyond torch, at most: RSS {after['VmHWM'] - before['VmRSS']:,.0f} MB, of which")
    print(f"  anonymous: {anonymous - before['RssAnon']:,.0f} MB; the rest are pages of files")


def compare_steps(root: Path) -> None:
    """The same steps with batches from both places, in turn."""
    import torch

    from tembed.lab.data.batches import training_batches
    from tembed.lab.data.image_set import ImageSet
    from tembed.lab.data.loading import load
    from tembed.loss import EmbeddingLoss
    from tembed.models.registry import create_model

    splits = load("random", root=root)
    train = splits.train
    in_memory = ImageSet(np.array(train.pool), train.labels, train.classes, train.indices)
    places = {"mapped file": train, "memory": in_memory}
    batches = {
        name: training_batches(images, BATCH, mean=splits.mean, std=splits.std) for name, images in places.items()
    }
    model, loss = create_model(MODEL, num_classes=CLASSES), EmbeddingLoss(0.5)
    optimizer = torch.optim.Adam(model.parameters())
    loading: dict[str, list[float]] = {name: [] for name in places}
    computing = []
    for step in range(ROUNDS * BATCHES):
        tensors = {}
        for name in places if step % 2 else reversed(places):
            start = time.perf_counter()
            tensors[name], labels = batches[name].batch(0, step)
            loading[name].append(time.perf_counter() - start)
        assert torch.equal(*tensors.values())
        if step % BATCHES:
            continue
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(model(tensors["memory"]), labels).backward()
        optimizer.step()
        computing.append(time.perf_counter() - start)
    compute, mapped, memory = (
        1e3 * statistics.median(times) for times in (computing, loading["mapped file"], loading["memory"])
    )
    print(f"a batch of {BATCH}: {mapped:.2f} ms from the mapped file, {memory:.2f} ms from memory, the same bits;")
    print(f"  the rest of a step of {MODEL}: {compute:.0f} ms")
    print(f"  speed of a step from the mapped file: {(compute + memory) / (compute + mapped):.3f} of that in memory")
    print(f"  a step of {19 * (mapped - memory):.1f} ms or more keeps 0.95 of its speed")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for work in (store_random, show_memory, compare_steps):
            process = multiprocessing.get_context("spawn").Process(target=work, args=(Path(folder),))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
