"""Images per second of our batches and of a per-image pipeline, and the loader's share of a training step.

    python benchmarks/loader.py

The per-image pipeline is the usual one: a Dataset that pads, crops and flips with Pillow and normalises with NumPy, in
a ``DataLoader(num_workers=0)``. Each round times the two loaders and a training step in turn, so that other load
affects all of them equally. The figures are medians over the rounds. Takes about a minute and needs no dataset on disk.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tembed.lab.data.batches import training_batches
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.parts.world import generate
from tembed.loss import EmbeddingLoss
from tembed.models.registry import create_model

BATCH = 32  # the paper's
ROUNDS = 15
BATCHES_PER_ROUND = 30
MEAN, STD = (0.5, 0.48, 0.45), (0.25, 0.25, 0.25)


class PerImage(Dataset[tuple[Tensor, int]]):
    """One image at a time, as in most training scripts."""

    def __init__(self, images: ImageSet) -> None:
        self.pixels = images.pixels()
        self.labels = images.labels.tolist()
        self.mean, self.std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        padded = ImageOps.expand(Image.fromarray(self.pixels[index]), 4)
        top, left, flip = (int(torch.randint(limit, (1,))) for limit in (9, 9, 2))
        image = padded.crop((left, top, left + 32, top + 32))
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        floats = (np.asarray(image, np.float32) / 255 - self.mean) / self.std
        return torch.from_numpy(floats.transpose(2, 0, 1).copy()), self.labels[index]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def exhaust(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def main() -> None:
    images = generate(BATCH * BATCHES_PER_ROUND)
    ours = training_batches(images, BATCH, mean=MEAN, std=STD)
    theirs = DataLoader(PerImage(images), BATCH, shuffle=True)
    model = create_model("rn26-embed", num_classes=10)
    loss, optimizer = EmbeddingLoss(weight=0.5), torch.optim.Adam(model.parameters())
    pixels, labels = ours.batch(0, 0)

    def train_step() -> None:
        optimizer.zero_grad()
        loss(model(pixels), labels).backward()
        optimizer.step()

    times: dict[str, list[float]] = {"ours": [], "theirs": [], "step": []}
    for epoch in range(1 + ROUNDS):
        now = {
            "ours": seconds(partial(exhaust, ours.epoch(epoch))) / len(ours),
            "theirs": seconds(partial(exhaust, theirs)) / len(theirs),
            "step": seconds(train_step),
        }
        if epoch > 0:  # the first round warms up
            for name, value in now.items():
                times[name].append(value)

    mid = {name: statistics.median(values) for name, values in times.items()}
    ratio = statistics.median(b / a for a, b in zip(times["ours"], times["theirs"], strict=True))
    print(f"batches of {BATCH}, {torch.get_num_threads()} threads, median of {ROUNDS} interleaved rounds\n")
    for name, label in (("theirs", "per image, Pillow and NumPy"), ("ours", "tembed.lab.data.batches")):
        print(f"{label:30}{mid[name] * 1e3:9.3f} ms per batch {BATCH / mid[name]:10,.0f} images/s")
    print(f"{'rn26-embed training step':30}{mid['step'] * 1e3:9.3f} ms per batch\n")
    print(f"ours is {ratio:.0f} times as fast (target: 30)")
    print(f"and takes {100 * mid['ours'] / mid['step']:.2f} % of a training step (target: under 3)")


if __name__ == "__main__":
    main()
