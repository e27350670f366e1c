"""Training on cached feature maps of a frozen network.

The training images are seen in `VIEWS` fixed views, so augmentation is limited to these: the image, its mirror image,
and a random crop of each. Validation uses the image itself. The test at the end uses the network, not the cache.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.attachment.frozen import Frozen
from tembed.attachment.sources import code_version
from tembed.common.arrays import Int64
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.images.pixels import Crops, cropped, normalised, padding
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.npy import take_rows
from tembed.lab.data.order import Order, draw_crops
from tembed.lab.training.feature_cache import Entry, cache_root, entry_key
from tembed.lab.training.inputs import Inputs
from tembed.lab.training.recipe import Recipe
from tembed.models.foreign import parse_foreign
from tembed.trained.checksummed import checksum

VIEWS = 4
"""Views of each training image: unchanged, mirrored, cropped, cropped and mirrored."""
FORMAT = 1
CHUNK = 100
CPU_CHUNK = 8
"""On a CPU a larger chunk is no faster, and Ctrl-C would have to wait for it."""
"""Images per forward pass of the extraction."""
WAIT_SECONDS = 0.5
"""How often a run looks whether another one has finished computing the features that it needs."""

Maps = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class CachedFeatures:
    """Feature maps: floats ``(n, d, h, w)``, from arrays ``(N, h, w, d)``.

    ``views``: one array for each view of the training images, or a single one for images that are shown unchanged.
    """

    views: tuple[Maps, ...]

    def tensors(self, order: Order, epoch: int, step: int) -> Tensor:
        positions = order.positions(epoch, step)
        rows = np.empty((len(positions), *self.views[0].shape[1:]), np.float16)
        view = np.zeros(len(positions), np.int64)
        if len(self.views) > 1:
            view = draw_views(order.total, order.seed, epoch)[order.share(step)]
        for number, maps in enumerate(self.views):
            rows[view == number] = take_rows(maps, positions[view == number])
        return torch.from_numpy(rows).float().permute(0, 3, 1, 2)


@lru_cache(maxsize=4)
def draw_views(count: int, seed: int, epoch: int) -> Int64:
    """Which view of each image an epoch shows, in the order of the epoch: ``(count,)``."""
    digest = hashlib.blake2b(f"{seed} {epoch} views".encode(), digest_size=8).digest()
    dice = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    return torch.randint(VIEWS, (count,), generator=dice).numpy()


def frozen_inputs(
    recipe: Recipe, network: Frozen, inputs: Inputs, progress: Progress, stop_if_asked: Callable[[], None]
) -> Inputs:
    """The inputs with feature maps for training and validation, from the cache or computed now."""
    shape = _map_shape(network, inputs)
    about = _about(recipe, network, inputs, shape)
    entry = Entry(cache_root() / entry_key(about))
    train, val = inputs.train.images, inputs.val.images
    wanted = {f"train-{view}": (train, view) for view in range(VIEWS)}
    wanted["val"] = (val, 0)
    found: dict[str, Maps] = {}
    waiting = False

    def wait() -> None:
        nonlocal waiting
        if not waiting:
            progress.say(f"waiting for another run that computes the same features in {entry.folder}")
        waiting = True
        stop_if_asked()
        time.sleep(WAIT_SECONDS)

    with entry.opened(about, wait):
        for name, (images, _) in wanted.items():
            maps = entry.read(name, (len(images), *shape))
            if not isinstance(maps, str):
                found[name] = maps
            elif maps:
                progress.say(f"warning: computing these features again: {maps}")
        missing = [name for name in wanted if name not in found]
        if missing:
            total = sum(len(wanted[name][0]) for name in missing)
            progress.say(
                f"computing the features of {recipe.model} once: {len(train):,} training images in {VIEWS} "
                f"views (the only augmentation) and {len(val):,} validation images, in {entry.folder}"
            )
            entry.check_space([""], (total, *shape))
        done = 0
        for name in missing:
            images, view = wanted[name]
            with entry.writing(name, (len(images), *shape)) as maps:
                for share, features in _extract(network, images, view, inputs):
                    stop_if_asked()
                    maps[share] = features
                    progress.update("features", done + share.stop, total)
            done += len(images)
            read = entry.read(name, (len(images), *shape))
            if isinstance(read, str):
                raise TembedError(f"the features were not written correctly ({read}): check the disk")
            found[name] = read
    views = tuple(found[f"train-{view}"] for view in range(VIEWS))
    return dataclasses.replace(
        inputs,
        train=dataclasses.replace(inputs.train, source=CachedFeatures(views)),
        val=dataclasses.replace(inputs.val, source=CachedFeatures((found["val"],))),
    )


def _about(recipe: Recipe, network: Frozen, inputs: Inputs, shape: tuple[int, ...]) -> dict[str, Any]:
    """Everything that the features depend on. The seed of the run is not among it."""
    return {
        "model": recipe.model.removesuffix(":aux").removesuffix(":none"),
        "weights": checksum(network.used_tensors()),
        "code": code_version(parse_foreign(recipe.model)),
        "data": recipe.data,
        "data_sha256": inputs.splits.sha256,
        "split": [recipe.split, recipe.split_seed, recipe.train_images],
        "image_size": recipe.image_size,
        "mean": list(inputs.mean),
        "std": list(inputs.std),
        "map": list(shape),
        "views": VIEWS,
        "torch": torch.__version__,
        "format": FORMAT,
    }


def _map_shape(network: Frozen, inputs: Inputs) -> tuple[int, ...]:
    """Height, width and channels of the feature map of an image."""
    height, width = inputs.splits.train.size
    device = next(network.parameters()).device
    _, channels, rows, columns = network.features(torch.zeros(1, 3, height, width, device=device)).shape
    return rows, columns, channels


def _extract(network: Frozen, images: ImageSet, view: int, inputs: Inputs) -> Iterator[tuple[slice, Maps]]:
    """The features of all images in one view, as arrays ``(n, h, w, d)`` of half precision, with their positions."""
    network.eval()
    device = next(network.parameters()).device
    crops = view_crops(len(images), *images.size, view)
    chunk = CPU_CHUNK if device.type == "cpu" else CHUNK
    for start in range(0, len(images), chunk):
        share = slice(start, min(start + chunk, len(images)))
        pixels = normalised(cropped(images.pixels(share), crops.of(share), inputs.mean), inputs.mean, inputs.std)
        features = network.features(pixels.to(device)).permute(0, 2, 3, 1).half().cpu()
        if not torch.isfinite(features).all():
            raise TembedError(
                f"the features behind {network.trunk.at!r} are too large for half precision: choose another layer"
            )
        yield share, features.numpy()


def view_crops(total: int, height: int, width: int, view: int) -> Crops:
    """The crop and flip of each image in a view, in natural order. It is the same for all runs."""
    flip = np.full(total, bool(view % 2))
    if view < 2:
        return Crops(np.full(total, padding(height)), np.full(total, padding(width)), flip)
    return draw_crops(total, height, width, 0, view)._replace(flip=flip)
