"""Batches on a GPU, made so that the host does not wait for the device.

Images that fit are copied to the device once, as bytes, and augmented there. Otherwise a thread prepares the bytes of
the next batch in pinned memory while the device computes. Either way the batches have the bits of those on the CPU.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tembed.images.device_pixels import DeviceColours, crop_on_device, device_colours, normalise_on_device
from tembed.lab.data.batches import Batches, Pixels
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.order import draw_crops, draw_order

SHARE = 0.25
"""The share of the device's free memory that the images may take. The networks need the rest."""
CHUNK = 1024
"""Images that are copied to the device together."""


def on_device(device: torch.device, *batches: Batches) -> tuple[Batches, ...]:
    """The same batches on a device; unchanged if it is the CPU."""
    if device.type == "cpu":
        return batches
    pixels = [each for each in batches if isinstance(each.source, Pixels)]
    fits = sum(len(each.images) * image_bytes(each.images) for each in pixels) <= SHARE * free_bytes(device)
    return tuple(
        ResidentBatches.copied(each, each.source, device)
        if fits and isinstance(each.source, Pixels)
        else StreamedBatches.of(each, device)
        for each in batches
    )


def image_bytes(images: ImageSet) -> int:
    """The size of one image."""
    height, width = images.size
    return 3 * height * width


def free_bytes(device: torch.device) -> int:
    """The free memory of a GPU."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return getattr(torch, device.type).mem_get_info(device)[0]


@dataclass(frozen=True, eq=False)
class ResidentBatches(Batches):
    """Batches of images that are on the device: bytes ``(N, H, W, 3)`` and labels ``(N,)``."""

    pixels: Tensor
    labels: Tensor
    colours: DeviceColours
    drawn: dict[int, Tensor] = field(default_factory=dict)
    """the positions of the images in the order of an epoch, and their crops: ``(4, N)``; only of the latest epoch"""

    @classmethod
    def copied(cls, batches: Batches, source: Pixels, device: torch.device) -> "ResidentBatches":
        """The batches of a source, whose images are copied to the device now."""
        assert batches.order.shuffle == (source.flips is not None)  # for training or for evaluation
        images = batches.images
        pixels = torch.empty((len(images), *images.size, 3), dtype=torch.uint8, device=device)
        for start in range(0, len(images), CHUNK):
            share = slice(start, start + CHUNK)
            pixels[share] = torch.from_numpy(images.pixels(share)).to(device)
        colours = device_colours(source.mean, source.std, device)
        return cls(images, batches.order, source, pixels, images.labels.to(device), colours)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        share = self.order.share(step)
        if not self.order.shuffle:
            return normalise_on_device(self.pixels[share], self.colours), self.labels[share]
        which, *_ = drawn = self._draw(epoch)[:, share]
        found = crop_on_device(self.pixels, which, drawn[1:], self.colours.mean)
        return normalise_on_device(found, self.colours), self.labels[which]

    def _draw(self, epoch: int) -> Tensor:
        if epoch not in self.drawn:
            assert isinstance(self.source, Pixels)
            assert self.source.flips is not None
            total, seed = self.order.total, self.order.seed
            crops = draw_crops(total, *self.images.size, seed, epoch, self.source.flips)
            drawn = np.stack([draw_order(total, seed, epoch), *crops])
            self.drawn.clear()
            self.drawn[epoch] = torch.from_numpy(drawn).to(self.pixels.device)
        return self.drawn[epoch]


@dataclass(frozen=True, eq=False)
class StreamedBatches(Batches):
    """Batches that are copied to the device one by one. A thread prepares the next while the host goes on."""

    device: torch.device
    colours: DeviceColours | None
    """of pixels, which are copied as bytes and normalised on the device"""
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    ahead: dict[tuple[int, int], Future[list[Tensor]]] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Batches, device: torch.device) -> "StreamedBatches":
        source = batches.source
        colours = device_colours(source.mean, source.std, device) if isinstance(source, Pixels) else None
        return cls(batches.images, batches.order, source, device, colours)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        prepared = self.ahead.pop((epoch, step), None) or self.thread.submit(self._prepare, epoch, step)
        self.ahead.clear()
        if step + 1 < len(self):
            self.ahead[epoch, step + 1] = self.thread.submit(self._prepare, epoch, step + 1)
        found, labels = (tensor.to(self.device, non_blocking=True) for tensor in prepared.result())
        return found if self.colours is None else normalise_on_device(found, self.colours), labels

    def _prepare(self, epoch: int, step: int) -> list[Tensor]:
        """Bytes or features, and labels, in memory that the device can read while the host goes on."""
        if isinstance(self.source, Pixels):
            found = torch.from_numpy(self.source.pixels(self.order, epoch, step))
        else:
            found = self.source.tensors(self.order, epoch, step)
        tensors = [found, self.labels_of(epoch, step)]
        return [tensor.pin_memory() for tensor in tensors] if self.device.type == "cuda" else tensors
