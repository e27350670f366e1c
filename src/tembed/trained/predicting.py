"""Predictions for pictures that are not in a dataset."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from tembed.common.arrays import Fit, Floats, UInt8, probability
from tembed.common.cores import cores
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.images.image_files import decode_batch
from tembed.images.pictures import Given, all_given, read_bytes, read_picture
from tembed.images.pixels import normalised
from tembed.models.network import check_finite
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork, Loadable, as_network

BATCH = 50
AHEAD = 4
"""Batches that are decoded while the network computes one."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one picture. ``probabilities``: ``(C,)``, those of the head.

    ``patches``: ``(C,)``, the mean prediction of the patches, and ``patch_entropy``: the mean of their entropies in
    nats; both None for a network without patch scores.
    """

    name: str
    classes: tuple[str, ...]
    probabilities: Floats
    patches: Floats | None
    patch_entropy: float | None

    def top(self, count: int = 1) -> list[tuple[str, float]]:
        """The classes with the highest probabilities, highest first."""
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [(self.classes[k], float(self.probabilities[k])) for k in order]

    @property
    def prediction(self) -> str:
        """The class that the head predicts."""
        return self.top()[0][0]

    @property
    def entropy(self) -> float:
        """The entropy of the head's prediction, in nats."""
        p = self.probabilities.astype(np.float64)
        return float(-(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum())

    @property
    def patch_prediction(self) -> str | None:
        """The class with the most mass over all patches; None without patch scores."""
        return None if self.patches is None else self.classes[int(self.patches.argmax())]

    @property
    def agree(self) -> bool | None:
        """Whether head and patches predict the same class; None without patch scores."""
        return None if self.patches is None else self.prediction == self.patch_prediction

    def __repr__(self) -> str:
        (name, p), patches = self.top()[0], ""
        if self.patches is not None:
            patches = f"; patches: {self.patch_prediction} {probability(self.patches.max())}"
        return f"Prediction({self.name}: {name} {probability(p)}{patches})"


class _Decoded(NamedTuple):
    """A batch: the names of its pictures with their pixels ``(n, size, size, 3)``, and what cannot be used."""

    names: list[str]
    pixels: list[UInt8]
    broken: list[str]


def predict(source: Loadable, images: Given | Iterable[Given], *, accelerator: str = "auto") -> list[Prediction]:
    """Classify pictures of any size with a trained network.

    Args:
        source: a run, a weights file, shipped weights, or a model that `tembed.load` returned.
        images: paths (a folder stands for all images in it), Pillow images, or uint8 arrays ``(H, W, 3)``. A picture
            becomes a square in the same way as those that the network was trained on; by default its centre is kept.
        accelerator: "cpu", "cuda", "mps", or "auto" for a GPU if there is one.

    Raises `TembedError` for a picture that cannot be read; `each_prediction` can leave such pictures out.
    """
    return list(each_prediction(source, images, accelerator=accelerator))


def each_prediction(
    source: Loadable,
    images: Given | Iterable[Given],
    *,
    accelerator: str = "auto",
    broken: list[str] | None = None,
    progress: Progress | None = None,
) -> Iterator[Prediction]:
    """Like `predict`, one at a time. With a list ``broken``, pictures that cannot be read are added to it."""
    progress = progress or Progress()
    model = as_network(source, accelerator)
    description = model.description
    given = all_given(images)
    done = 0
    try:
        for batch in _decoded_batches(given, description.input_size, description.fit):
            done += len(batch.names) + len(batch.broken)
            if batch.broken and broken is None:
                raise TembedError(batch.broken[0])
            (broken if broken is not None else []).extend(batch.broken)
            if batch.names:
                yield from _predict_batch(model, batch)
            progress.update("images", done, len(given))
    finally:
        progress.close()


def _decoded_batches(given: Sequence[Given], size: int, fit: Fit) -> Iterator[_Decoded]:
    """The batches in order; threads decode a few of them ahead (Pillow decodes without Python's lock)."""
    pool = ThreadPoolExecutor(max(1, cores() - 1))
    waiting: deque[Future[_Decoded]] = deque()
    try:
        for start in range(0, len(given), BATCH):
            waiting.append(pool.submit(_decode, given[start : start + BATCH], start + 1, size, fit))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(given: Sequence[Given], first: int, size: int, fit: Fit) -> _Decoded:
    names: list[str] = []
    pixels: list[UInt8] = []
    broken: list[str] = []
    for number, one in enumerate(given, first):
        if isinstance(one, str | Path):
            (found,) = decode_batch([read_bytes(Path(one))], size, fit)
            if isinstance(found, str):
                broken.append(f"{one}: {found}")
                continue
            name = str(one)
        else:
            try:
                picture = read_picture(one, size, fit, f"image-{number}")
            except TembedError as error:
                broken.append(str(error))
                continue
            name, found = picture.name, picture.pixels
        names.append(name)
        pixels.append(found)
    return _Decoded(names, pixels, broken)


@torch.no_grad()
def _predict_batch(model: AnyNetwork, batch: _Decoded) -> Iterator[Prediction]:
    model.eval()
    classes, (mean, std) = model.description.classes, model.description.normalisation
    device = next(model.parameters()).device
    images = normalised(np.stack(batch.pixels), mean, std)
    with reproducible(device):
        torch.manual_seed(model.description.seed)  # for maximizers that draw noise
        output = model(images.to(device))
    check_finite(output.logits, output.scores)
    probabilities = output.logits.float().softmax(1).cpu().numpy()
    patches = entropies = None
    if output.scores is not None:
        scores = output.scores.float().log_softmax(1)
        p = scores.exp()
        patches = p.mean((2, 3)).cpu().numpy()
        entropies = -(p * scores).sum(1).mean((1, 2)).cpu().numpy()
    for number, name in enumerate(batch.names):
        yield Prediction(
            name=name,
            classes=classes,
            probabilities=probabilities[number],
            patches=None if patches is None else patches[number],
            patch_entropy=None if entropies is None else float(entropies[number]),
        )
