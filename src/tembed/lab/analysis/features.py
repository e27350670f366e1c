"""The features of a trained network at every patch of some images, extracted once and cached (§4.3).

A *point* is a pixel of the map in front of stage 4; it stands for the patch of the image that the block's window
covers there. Points are ordered by image, row and column.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.block import DeepSupervision, FeatureEmbedding, half_window
from tembed.common.arrays import Floats, Int64, UInt8, briefly
from tembed.common.errors import TembedError
from tembed.common.files import make_folder, write_file
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.batches import evaluation_batches
from tembed.lab.data.image_set import ImageSet
from tembed.models.network import Block, check_finite
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork

BATCH = 100
PADDING = 255
"""Colour of a patch outside its image."""
KIND = "features"
"""Marks a cache file as one of features."""


@dataclass(frozen=True)
class Features:
    """What a network computes on ``N`` images: ``P`` points, ``C`` classes. None for what the network does not have.

    ``block_input``: ``(P, d)``, stage 3 output. ``block_output``: ``(P, d')``, stage 4 input. ``softmax``:
    ``(P, C)``, the patches' class predictions. ``mixing``: ``(P, C)``, the weights of the class vectors.
    ``embedding``: ``(P, v)``, ``f'`` without the bias of DenseNet's value convolution. ``values``: ``(C, v)``, the
    class vectors. ``logits``: ``(N, C)``, those of the head. ``labels``: ``(N,)``. ``key``: a hash of everything that
    these depend on.
    """

    key: str
    map_size: tuple[int, int]
    window: tuple[int, int]
    labels: Int64
    logits: Floats
    block_input: Floats
    block_output: Floats
    softmax: Floats | None
    mixing: Floats | None
    embedding: Floats | None
    values: Floats | None

    def __repr__(self) -> str:
        return briefly("Features", **{field.name: getattr(self, field.name) for field in fields(self)})

    def required(self, name: str) -> Floats:
        """One of the arrays that may be None; a `TembedError` if the network does not have it."""
        found: Floats | None = getattr(self, name)
        if found is None:
            raise TembedError(f"the network has no {name}: its scores are not fed back, or it has none")
        return found

    @property
    def per_image(self) -> int:
        """The number of points per image."""
        return self.map_size[0] * self.map_size[1]

    @property
    def head(self) -> Int64:
        """The class that the head predicts for each image: ``(N,)``."""
        return self.logits.argmax(1)

    @property
    def image_of(self) -> Int64:
        """The image of each point: ``(P,)``."""
        return np.repeat(np.arange(len(self.labels)), self.per_image)

    @property
    def entropy(self) -> Floats | None:
        """The entropy of each patch's prediction, in nats: ``(P,)``."""
        return None if self.softmax is None else entropy(self.softmax)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """The points whose patch lies inside its image, or all points if there are none: ``(P,)``."""
        good = []
        for cells, window in zip(self.map_size, self.window, strict=True):
            index = np.arange(cells)
            good.append((index >= (window - 1) // 2) & (index + window // 2 < cells))
        inside = np.tile((good[0][:, None] & good[1][None, :]).reshape(-1), len(self.labels))
        return inside if inside.any() else np.ones_like(inside)

    def position(self, point: int) -> tuple[int, int, int]:
        """Image, map row and map column of a point."""
        image, pixel = divmod(int(point), self.per_image)
        return image, *divmod(pixel, self.map_size[1])

    def picture(self, images: UInt8, point: int, margin: int = 0) -> UInt8:
        """The patch of a point, cut out of all images ``(N, H, W, 3)``, with ``margin`` more pixels on each side."""
        image, row, column = self.position(point)
        return patch_picture(images[image], (row, column), self.map_size, self.window, margin)


def entropy(p: Floats) -> Floats:
    """``-sum p log p`` over the last axis, in nats."""
    return -(p * np.log(np.maximum(p, np.finfo(np.float32).tiny))).sum(-1)


# --- from a map to the image


def window_of(block: Block | None, map_size: tuple[int, int]) -> tuple[int, int]:
    """The window of a block's patches on a map; without patch scores, the paper's window: half the map."""
    given = block.match.window if isinstance(block, FeatureEmbedding | DeepSupervision) else None
    return given or half_window(*map_size)


def patch_span(index: int, window: int, stride: float, margin: int = 0) -> tuple[int, int]:
    """The image rows (or columns) of the patch at a map row: the first one, and one past the last.

    ``s (i - (k-1)//2)`` to ``s (i + k//2 + 1)``, rounded, and ``margin`` more on each side; they may lie outside.
    """
    first, end = round(stride * (index - (window - 1) // 2)), round(stride * (index + window // 2 + 1))
    return first - margin, end + margin


def patch_picture(
    image: UInt8, cell: tuple[int, int], map_size: tuple[int, int], window: tuple[int, int], margin: int = 0
) -> UInt8:
    """The region of ``image (H, W, 3)`` under the patch at the map's ``cell``, white outside the image."""
    (top, bottom), (left, right) = (
        patch_span(index, k, side / cells, margin)
        for index, k, side, cells in zip(cell, window, image.shape[:2], map_size, strict=True)
    )
    picture = np.full((bottom - top, right - left, 3), PADDING, np.uint8)
    rows = slice(max(0, top), min(image.shape[0], bottom))
    columns = slice(max(0, left), min(image.shape[1], right))
    picture[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left] = image[rows, columns]
    return picture


# --- extraction


@torch.no_grad()
def extract_features(network: AnyNetwork, images: ImageSet, seed: int = 0, progress: Progress = SILENT) -> Features:
    """The features of all ``images``, in evaluation mode, computed on the model's device.

    ``seed`` is for maximizers that draw noise.
    """
    model = network.eval()
    device = next(model.parameters()).device
    mean, std = network.description.normalisation
    batches = evaluation_batches(images, BATCH, mean=mean, std=std)
    maps: dict[str, list[Tensor]] = {}
    logits: list[Tensor] = []
    done, size = 0, (0, 0)
    with reproducible(device):
        torch.manual_seed(seed)
        for pixels, labels in batches.epoch(0):
            trace = model.trace(pixels.to(device))
            check_finite(trace.logits, trace.scores)
            size = (trace.block_input.shape[2], trace.block_input.shape[3])
            for name in ("block_input", "block_output", "softmax", "mixing", "embedding"):
                found = getattr(trace, name)
                if found is not None:
                    maps.setdefault(name, []).append(found.permute(0, 2, 3, 1).flatten(0, 2).contiguous().cpu())
            logits.append(trace.logits.cpu())
            done += len(labels)
            progress.update(f"features of {network.description.model}", done, len(images))
    arrays: dict[str, Floats] = {name: torch.cat(found).float().numpy() for name, found in maps.items()}
    block = model.block
    if isinstance(block, FeatureEmbedding):
        arrays["values"] = block.class_vectors().float().contiguous().cpu().numpy()
        if block.values.bias is not None:
            arrays["embedding"] = arrays["embedding"] - block.values.bias.float().cpu().numpy()
    return Features(
        key=features_key(network, images, seed),
        map_size=size,
        window=window_of(block, size),
        labels=images.labels.numpy(),
        logits=torch.cat(logits).float().numpy(),
        block_input=arrays["block_input"],
        block_output=arrays["block_output"],
        softmax=arrays.get("softmax"),
        mixing=arrays.get("mixing"),
        embedding=arrays.get("embedding"),
        values=arrays.get("values"),
    )


# --- cache


def features_key(network: AnyNetwork, images: ImageSet, seed: int) -> str:
    """A hash of what the features depend on: the weights, the images with their normalisation, and the seed."""
    digest = hashlib.sha256(checksum(network.state_dict()).encode())
    known, shape = network.description, [len(images), 3, *images.size]
    about = [known.recipe, known.mean, known.std, shape, seed, 1]
    digest.update(json.dumps(about).encode())
    digest.update(images.pixels().data)
    digest.update(images.labels.numpy().data)
    return digest.hexdigest()[:16]


def cached_features(
    network: AnyNetwork, images: ImageSet, folder: Path, seed: int = 0, progress: Progress = SILENT
) -> Features:
    """The same as `extract_features`, read from ``folder`` if it has an undamaged copy, and written there if not."""
    path = folder / f"features-{features_key(network, images, seed)}.safetensors"
    if path.exists():
        try:
            return _read(path)
        except TembedError as error:
            progress.say(f"extracting the features again: {error}")
    features = extract_features(network, images, seed, progress)
    tensors, record = {}, {"kind": KIND}
    for field in fields(features):
        value = getattr(features, field.name)
        if isinstance(value, np.ndarray):
            tensors[field.name] = torch.from_numpy(value)
        else:
            record[field.name] = value
    make_folder(folder)
    write_file(path, checksummed_bytes(tensors, record))
    return features


def _read(path: Path) -> Features:
    tensors, record = read_checksummed(path, KIND)
    record |= {name: tensor.numpy() for name, tensor in tensors.items()}
    try:
        height, width = record.pop("map_size")
        window = tuple(record.pop("window"))
        return Features(map_size=(height, width), window=window, **{k: v for k, v in record.items() if k != "kind"})
    except (KeyError, TypeError, ValueError) as error:
        raise TembedError(f"{path} is not a features file of tembed ({error})") from None
