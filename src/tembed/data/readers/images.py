"""Decodes images to RGB pixels: a single one, a batch, or all images of an archive in several processes.

Greyscale becomes grey RGB; transparent pixels are blended with white; palettes, CMYK and YCbCr are converted; 16-bit
values are scaled to 8; the camera's rotation (EXIF) is applied; only the first frame of an animation is used. The
decoding processes import this module, so it imports nothing heavy.
"""

import hashlib
import io
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context, parent_process
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from tembed.arrays import UInt8
from tembed.data.readers.archives import Archive, read_member, where
from tembed.data.readers.reading import Chunk, Origin, SourceFile
from tembed.errors import TembedError, one_line
from tembed.machine import cores
from tembed.reporting.progress import Progress

ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 1 << 26  # 67 million; an RGB image of 200 MB
BATCH_IMAGES = 256
BATCH_BYTES = 8 << 20
WORTH_PROCESSES = 2000  # images; below this, starting processes takes longer than decoding
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Decoded = UInt8 | str
"""Pixels ``(H, W, 3)``, or the reason why there are none."""


class BrokenImageError(Exception):
    """The reason why these bytes are not accepted as an image; the caller knows the name of the file."""


class Item(NamedTuple):
    """An image that is still in its file."""

    name: str
    label: int
    origin: Origin


def decode(data: bytes, size: int | None = None) -> UInt8:
    """RGB pixels ``(H, W, 3)``. With ``size``, the shorter side is resized to it and the square centre is kept."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BrokenImageError(f"{image.width}x{image.height} pixels exceed the cap of {MAX_PIXELS} pixels")
            upright = _upright(image, _to_rgb(image))
            if size is not None and upright.size != (size, size):
                upright = ImageOps.fit(upright, (size, size), Image.Resampling.LANCZOS)
            return np.asarray(upright)
    except BrokenImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BrokenImageError(f"exceeds the cap of {MAX_PIXELS} pixels") from error
    except Exception as error:  # Pillow's decoders raise nearly every type of error on damaged bytes
        reason = "not an image in a known format" if isinstance(error, Image.UnidentifiedImageError) else error
        raise BrokenImageError(one_line(str(reason)) or type(error).__name__) from error


def decode_batch(encoded: list[bytes | str], size: int | None) -> list[Decoded]:
    """Decode each image. A string stands for an image that could not be read and is passed on as the reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return [one if isinstance(one, str) else _pixels_or_reason(one, size) for one in encoded]


def decode_items(
    archive: Archive, items: list[Item], size: int | None, left_out: list[str] | None, progress: Progress
) -> Iterator[Chunk]:
    """Chunks of equally sized square images, in the order of ``items``.

    A broken image raises an error that names it. If a list ``left_out`` is given, the image is skipped instead, and its
    name and the reason are appended to that list.
    """
    shape: tuple[int, ...] | None = None
    first, done = "", 0
    for batch, digests, decoded in _decode_batches(archive, items, size):
        images, kept, files = [], [], []
        for item, digest, one in zip(batch, digests, decoded, strict=True):
            if isinstance(one, str):
                if left_out is None:
                    raise TembedError(
                        f"{where(archive, item.name)}: {one}; replace or remove it, or leave out every broken "
                        "image with `skip_broken`"
                    )
                left_out.append(f"{item.name}: {one}")
                continue
            shape, first = (shape, first) if shape else (one.shape, item.name)
            _check_shape(archive, item.name, one.shape, first, shape)
            images.append(one)
            kept.append(item)
            files.append(SourceFile(item.name, digest))
        done += len(batch)
        progress.update("decoding", done, len(items))
        if images:
            labels = np.array([item.label for item in kept], np.int64)
            origin = np.array([item.origin for item in kept], np.uint8)
            yield Chunk(np.stack(images), labels, origin, tuple(files))


def _pixels_or_reason(data: bytes, size: int | None) -> Decoded:
    try:
        return decode(data, size)
    except BrokenImageError as error:
        return str(error)


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "F":
        raise BrokenImageError("floating-point pixels have no known range; save it with 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.int64)
        if grey.min() < 0 or grey.max() > 65535:
            raise BrokenImageError("32-bit pixels have no known range; save it with 8 or 16 bits")
        return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _upright(image: Image.Image, rgb: Image.Image) -> Image.Image:
    try:
        mark = image.getexif().get(ORIENTATION)
    except Exception:  # the pixels are intact even if the EXIF is damaged; image viewers show them unrotated
        return rgb
    turn = TURNS.get(mark) if isinstance(mark, int) else None
    return rgb if turn is None else rgb.transpose(turn)


def _check_shape(archive: Archive, name: str, shape: tuple[int, ...], first: str, expected: tuple[int, ...]) -> None:
    way_out = "give `size` to resize the shorter side of every image to it and keep the square centre"
    if shape != expected:
        raise TembedError(
            f"{where(archive, name)} is {shape[1]}x{shape[0]}, but {first} is {expected[1]}x{expected[0]}: {way_out}"
        )
    if shape[0] != shape[1]:
        raise TembedError(f"{where(archive, name)} is {shape[1]}x{shape[0]}, not square: {way_out}")


def _decode_batches(
    archive: Archive, items: list[Item], size: int | None
) -> Iterator[tuple[list[Item], list[str], list[Decoded]]]:
    """Batches in order; a few more than there are processes are decoded ahead."""
    workers = cores()
    with ExitStack() as stack:
        submit: Callable[..., Future[list[Decoded]]] = _run_now
        if len(items) >= WORTH_PROCESSES and workers > 1:
            # spawned, not forked: a fork of a process with torch's threads can hang
            pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_exit_with_parent)
            stack.callback(pool.shutdown, cancel_futures=True)
            submit = pool.submit
        waiting: deque[tuple[list[Item], list[str], Future[list[Decoded]]]] = deque()
        try:
            for batch, encoded in _encoded_batches(archive, items):
                digests = [hashlib.sha256(one).hexdigest() if isinstance(one, bytes) else "" for one in encoded]
                waiting.append((batch, digests, submit(decode_batch, encoded, size)))
                if len(waiting) > 2 * workers:
                    ready, marks, future = waiting.popleft()
                    yield ready, marks, future.result()
            while waiting:
                ready, marks, future = waiting.popleft()
                yield ready, marks, future.result()
        except BrokenProcessPool:
            raise TembedError(
                f"{archive.path}: a decoding process died (out of memory?); if this was called from a script, "
                "call it under `if __name__ == '__main__':`"
            ) from None


def _encoded_batches(archive: Archive, items: list[Item]) -> Iterator[tuple[list[Item], list[bytes | str]]]:
    """Items with their bytes, or with the reason why they cannot be read."""
    batch: list[Item] = []
    encoded: list[bytes | str] = []
    held = 0
    for item in items:
        batch.append(item)
        try:
            encoded.append(read_member(archive, item.name))
        except TembedError as error:
            encoded.append(str(error).removeprefix(f"{where(archive, item.name)} "))
        held += len(encoded[-1])
        if len(batch) == BATCH_IMAGES or held > BATCH_BYTES:
            yield batch, encoded
            batch, encoded, held = [], [], 0
    if batch:
        yield batch, encoded


def _run_now(work: Callable[..., list[Decoded]], *arguments: object) -> Future[list[Decoded]]:
    """Like `submit` of a pool, but runs the work at once in this process."""
    future: Future[list[Decoded]] = Future()
    future.set_result(work(*arguments))
    return future


def _exit_with_parent() -> None:
    """End this worker if its parent is killed; otherwise it would wait for work forever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
