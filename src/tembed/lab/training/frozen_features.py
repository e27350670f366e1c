"""Training on cached feature maps of a frozen network.

The training images are seen in `VIEWS` fixed views, so augmentation is limited to these: the image, its mirror image,
and a random crop of each. Validation uses the image itself. The test at the end uses the network, not the cache.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
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
from tembed.lab.data.batches import Batches, EpochDraws, draw_epoch, padding
from tembed.lab.training.feature_cache import Entry, cache_root, entry_key
from tembed.lab.training.inputs import Inputs
from tembed.lab.training.recipe import Recipe
from tembed.models.foreign import parse_foreign
from tembed.trained.checksummed import checksum

VIEWS = 4
"""Views of each training image: unchanged, mirrored, cropped, cropped and mirrored."""
FORMAT = 1
CHUNK = 100
"""Images per forward pass of the extraction."""
WAIT_SECONDS = 0.5
"""How often a run looks whether another one has finished computing the features that it needs."""

Maps = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class FeatureBatches(Batches):
    """Batches of feature maps ``(n, d, h, w)`` instead of images, from arrays ``(N, h, w, d)``, one per view."""

    _: KW_ONLY
    views: tuple[Maps, ...] = ()

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        share = self._share(step)
        if not self.augment:
            return self._maps(self.views[0][share]), self.images.labels[share].clone()
        order, view = self._draws(epoch).order[share], draw_views(len(self.images), self.seed, epoch)[share]
        rows = np.empty((len(order), *self.views[0].shape[1:]), np.float16)
        for number, maps in enumerate(self.views):
            rows[view == number] = maps[order[view == number]]
        return self._maps(rows), self.images.labels[torch.from_numpy(order)]

    def _draws(self, epoch: int) -> EpochDraws:
        return draw_epoch(len(self.images), 8, 8, self.seed, epoch)  # the order does not depend on the size

    def _maps(self, rows: Maps) -> Tensor:
        return torch.from_numpy(np.array(rows)).float().permute(0, 3, 1, 2)


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
    train, val = inputs.train, inputs.val
    wanted: dict[str, tuple[Batches, int]] = {f"train-{view}": (train, view) for view in range(VIEWS)}
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
        for name, (batches, _) in wanted.items():
            maps = entry.read(name, (len(batches.images), *shape))
            if not isinstance(maps, str):
                found[name] = maps
            elif maps:
                progress.say(f"warning: computing these features again: {maps}")
        missing = [name for name in wanted if name not in found]
        if missing:
            images = sum(len(wanted[name][0].images) for name in missing)
            progress.say(
                f"computing the features of {recipe.model} once: {len(train.images):,} training images in {VIEWS} "
                f"views (the only augmentation) and {len(val.images):,} validation images, in {entry.folder}"
            )
            entry.check_space([""], (images, *shape))
        done = 0
        for name in missing:
            batches, view = wanted[name]
            with entry.writing(name, (len(batches.images), *shape)) as maps:
                for share, features in _extract(network, batches, view):
                    stop_if_asked()
                    maps[share] = features
                    progress.update("features", done + share.stop, images)
            done += len(batches.images)
            read = entry.read(name, (len(batches.images), *shape))
            if isinstance(read, str):
                raise TembedError(f"the features were not written correctly ({read}): check the disk")
            found[name] = read
    views = tuple(found[f"train-{view}"] for view in range(VIEWS))
    return dataclasses.replace(inputs, train=_with_maps(train, views), val=_with_maps(val, (found["val"],)))


def _with_maps(batches: Batches, views: tuple[Maps, ...]) -> FeatureBatches:
    fields = {each.name: getattr(batches, each.name) for each in dataclasses.fields(Batches)}
    return FeatureBatches(**fields, views=views)


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
        "mean": list(inputs.val.mean),
        "std": list(inputs.val.std),
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


def _extract(network: Frozen, batches: Batches, view: int) -> Any:
    """The features of all images in one view, as arrays ``(n, h, w, d)`` of half precision, with their positions."""
    network.eval()
    device = next(network.parameters()).device
    source = dataclasses.replace(batches, augment=True, batch_size=1, rank=0, world_size=1)
    draws = view_draws(len(source.images), *source.images.size, view)
    for start in range(0, len(source.images), CHUNK):
        share = slice(start, min(start + CHUNK, len(source.images)))
        features = network.features(source.pictures(draws, share).to(device)).permute(0, 2, 3, 1).half().cpu()
        if not torch.isfinite(features).all():
            raise TembedError(
                f"the features behind {network.trunk.at!r} are too large for half precision: choose another layer"
            )
        yield share, features.numpy()


def view_draws(count: int, height: int, width: int, view: int) -> EpochDraws:
    """The crop and flip of each image in a view, in natural order. It is the same for all runs."""
    order, flip = np.arange(count), np.full(count, bool(view % 2))
    if view < 2:
        return EpochDraws(order, np.full(count, padding(height)), np.full(count, padding(width)), flip)
    drawn = draw_epoch(count, height, width, 0, view)
    return EpochDraws(order, drawn.top, drawn.left, flip)
