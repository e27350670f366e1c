"""Decodes all images of an archive, in several processes if there are many, with bounded memory."""

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import parent_process
from typing import Any, NamedTuple

import numpy as np

from tembed.common.arrays import Fit
from tembed.common.cores import cores
from tembed.common.errors import TembedError
from tembed.common.processes import process_pool
from tembed.common.progress import Progress
from tembed.images.image_files import (
    BrokenImageError,
    Decoded,
    decode_each,
    decode_picture,
    header_size,
    quiet_pillow,
)
from tembed.lab.data.readers.archives import Archive, read_member, where
from tembed.lab.data.readers.reading import Chunk, NeedsSize, Options, SourceFile

MAX_SIDE = 1024  # pixels
BATCH_IMAGES = 256
BATCH_BYTES = 8 << 20  # of files
DECODED_BYTES = 64 << 20  # of pixels in a batch
AHEAD_BYTES = 1 << 29  # of pixels in all batches that are decoded ahead
WORTH_PROCESSES = 2000  # images; below this, starting processes takes longer than decoding
LONGER = 1.25  # long to short side, above which an image counts as oblong
NAMED = 20  # broken images that are named one by one


class Item(NamedTuple):
    """An image that is still in its file. ``subset``: the code of its subset."""

    name: str
    label: int
    subset: int


class Batch(NamedTuple):
    """Files that are decoded together. A file that cannot be read has the reason in place of its bytes."""

    items: list[Item]
    encoded: list[bytes | str]
    digests: list[str]


class Decoding:
    """Chunks of equally sized square images, in the order of ``items``.

    After a broken image nothing more is stored, but the rest is decoded, so that the error at the end names all broken
    images at once. If they are to be skipped, their names and the reasons are appended to ``left_out`` instead. At the
    end, ``notes`` gets a line about how oblong images were fitted.

    Its state identifies the files that are done by their names, labels, sizes and times of change. Whether broken
    images are skipped is no part of it: after an error, the same import may go on with ``skip_broken``.
    """

    def __init__(
        self,
        archive: Archive,
        items: list[Item],
        options: Options,
        left_out: list[str],
        notes: list[str],
        progress: Progress,
    ) -> None:
        self.archive, self.items, self.options = archive, items, options
        self.left_out, self.notes, self.progress = left_out, notes, progress
        self.done, self.given = 0, len(left_out)
        self.shapes = _Shapes(options.fit)
        self.seen = hashlib.sha256(repr((options.size, options.fit)).encode())

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "seen": self.seen.hexdigest(),
            "left_out": self.left_out[self.given :],
            "shapes": vars(self.shapes),
        }

    def resume(self, state: dict[str, Any]) -> bool:
        seen = self.seen.copy()
        for item in self.items[: state["done"]]:
            seen.update(self._mark(item))
        if seen.hexdigest() != state["seen"]:
            return False
        self.done, self.seen = state["done"], seen
        self.left_out += state["left_out"]
        vars(self.shapes).update(state["shapes"])
        self.progress.say(
            f"continuing an import that ended early: {self.done:,} of {len(self.items):,} files are already decoded"
        )
        return True

    def _mark(self, item: Item) -> bytes:
        """What must not change about a file that was decoded."""
        try:
            state = self.archive.state(item.name)
        except OSError:
            state = ()
        return repr((*item, *state)).encode()

    def chunks(self) -> Iterator[Chunk]:
        archive, options = self.archive, self.options
        expected, first = (None, "") if options.size is not None else _first_side(archive, self.items)
        before, start, seen, broken = self.done, time.monotonic(), self.done, list[str]()
        for batch, decoded in _decode_batches(archive, self.items[before:], options, expected):
            images, kept, files = [], [], []
            for item, digest, one in zip(batch.items, batch.digests, decoded, strict=True):
                if isinstance(one, str):
                    (self.left_out if options.skip_broken else broken).append(f"{item.name}: {one}")
                    continue
                if one.pixels is None:
                    assert expected is not None
                    raise NeedsSize(
                        f"{where(archive, item.name)} is {one.width}x{one.height}, but {first} is "
                        f"{expected}x{expected}: give `size`"
                    )
                self.shapes.add(item.name, one)
                images.append(one.pixels)
                kept.append(item)
                files.append(SourceFile(item.name, digest))
            seen += len(batch.items)
            rate = (seen - before) / max(time.monotonic() - start, 1e-9)
            self.progress.update("decoding", seen, len(self.items), images_per_second=rate)
            if broken:  # the next import goes on in front of the first one
                continue
            self.done = seen
            for item in batch.items:
                self.seen.update(self._mark(item))
            if images:
                labels = np.array([item.label for item in kept], np.int64)
                subsets = np.array([item.subset for item in kept], np.uint8)
                yield Chunk(np.stack(images), labels, subsets, tuple(files))
        if broken:
            raise self._refused(broken)
        self.notes.extend(self.shapes.notes())

    def _refused(self, broken: list[str]) -> TembedError:
        """The error about all broken images. Their names are its notes, and the first ones are also said."""
        if len(broken) == 1:
            return TembedError(
                f"{self.archive.path}: {broken[0]}; replace or remove it, or leave out every broken image with "
                "`skip_broken`"
            )
        for line in broken[:NAMED]:
            self.progress.say(f"broken: {line}")
        more = "" if len(broken) <= NAMED else f", of which the first {NAMED} are named above"
        error = TembedError(
            f"{self.archive.path}: {len(broken):,} of {len(self.items):,} images are broken{more}; replace or remove "
            "them, or leave them all out with `skip_broken`, which lists them"
        )
        for line in broken:
            error.add_note(line)
        return error


def _first_side(archive: Archive, items: list[Item]) -> tuple[int | None, str]:
    """The side of the first image that is not broken, which all others must have, and its name."""
    for item in items:
        try:
            with quiet_pillow():
                data = read_member(archive, item.name)
                width, height = header_size(data)
                if width == height <= MAX_SIDE:
                    decode_picture(data)
        except (TembedError, BrokenImageError):
            continue
        if not width == height <= MAX_SIDE:
            what = "not square" if width != height else f"larger than {MAX_SIDE}x{MAX_SIDE}"
            raise NeedsSize(f"{where(archive, item.name)} is {width}x{height}, {what}: give `size`")
        return width, item.name
    return None, ""


class _Shapes:
    """Remembers which image lost or gained most when it was made square."""

    def __init__(self, fit: Fit) -> None:
        self.fit, self.oblong, self.count = fit, 0, 0
        self.ratio, self.longest, self.size = 1.0, "", ""

    def add(self, name: str, picture: Decoded) -> None:
        ratio = max(picture.width, picture.height) / min(picture.width, picture.height)
        self.count += 1
        self.oblong += ratio > LONGER
        if ratio > self.ratio:
            self.ratio, self.longest, self.size = ratio, name, f"{picture.width}x{picture.height}"

    def notes(self) -> list[str]:
        if self.ratio == 1:
            return []
        kept = f"{100 / self.ratio:.0f} %"
        what = {
            "crop": f"the centre crop kept {kept} of {self.longest} ({self.size}), the least of all; it cut off more "
            f"than a fifth of {self.oblong} of {self.count} images",
            "pad": f"{self.longest} ({self.size}) fills {kept} of its square, the least of all; {self.oblong} of "
            f"{self.count} images fill less than four fifths",
            "stretch": f"{self.longest} ({self.size}) was stretched by {self.ratio:.2f}, the most of all; "
            f"{self.oblong} of {self.count} images by more than {LONGER}",
        }
        return [what[self.fit]]


def _decode_batches(
    archive: Archive, items: list[Item], options: Options, expected: int | None
) -> Iterator[tuple[Batch, list[Decoded | str]]]:
    """Batches in order; a few more than there are processes are decoded ahead."""
    workers, side = cores(), options.size or expected or 1
    most = max(1, min(BATCH_IMAGES, min(DECODED_BYTES, AHEAD_BYTES // (2 * workers)) // (3 * side * side)))
    with ExitStack() as stack:
        submit: Callable[..., Future[list[Decoded | str]]] = _run_now
        ahead = 0
        if len(items) >= WORTH_PROCESSES and workers > 1:
            pool = process_pool(workers, _exit_with_parent)
            stack.callback(pool.shutdown, cancel_futures=True)
            submit, ahead = pool.submit, 2 * workers
        waiting: deque[tuple[Batch, Future[list[Decoded | str]]]] = deque()
        try:
            for batch in _encoded_batches(archive, items, most):
                waiting.append((batch, submit(_decode_all, batch.encoded, options.size, options.fit, expected)))
                if len(waiting) > ahead:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            while waiting:
                ready, future = waiting.popleft()
                yield ready, future.result()
        except BrokenProcessPool:
            raise TembedError(
                f"{archive.path}: a decoding process died (out of memory?); if this was called from a script, "
                "call it under `if __name__ == '__main__':`"
            ) from None


def _encoded_batches(archive: Archive, items: list[Item], most: int) -> Iterator[Batch]:
    batch, held = Batch([], [], []), 0
    for item in items:
        batch.items.append(item)
        try:
            data: bytes | str = read_member(archive, item.name)
        except TembedError as error:
            data = str(error).removeprefix(f"{where(archive, item.name)} ")
        batch.encoded.append(data)
        batch.digests.append(hashlib.sha256(data).hexdigest() if isinstance(data, bytes) else "")
        held += len(data)
        if len(batch.items) == most or held > BATCH_BYTES:
            yield batch
            batch, held = Batch([], [], []), 0
    if batch.items:
        yield batch


def _decode_all(encoded: list[bytes | str], size: int | None, fit: Fit, expected: int | None) -> list[Decoded | str]:
    """Decode each image, or pass on why it cannot be read."""
    return decode_each(encoded, lambda data: decode_picture(data, size, fit, expected))


def _run_now(work: Callable[..., list[Decoded | str]], *arguments: object) -> Future[list[Decoded | str]]:
    """Like `submit` of a pool, but runs the work at once in this process."""
    future: Future[list[Decoded | str]] = Future()
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
