"""Mini-ImageNet as it lies on people's disks: images with three CSVs (Ravi & Larochelle), or cached pickles.

The published parts hold different classes (64 / 16 / 20, for few-shot work); the paper's §4 pools all 100, so
the part that an image came from is not kept.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tembed.arrays import Int64, UInt8
from tembed.data.readers.archives import Tree, open_member, read, where
from tembed.data.readers.images import Item, decode_items
from tembed.data.readers.pickles import read_pickle
from tembed.data.readers.reading import Block, Origin, Reading
from tembed.errors import TembedError, one_line
from tembed.reporting.progress import Progress

CSVS = ("train.csv", "val.csv", "test.csv")
CACHES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in ("train", "val", "test"))


def read_csvs(tree: Tree, folder: str, size: int | None, skip_broken: bool, progress: Progress) -> Reading:
    """``images/`` beside ``train.csv``, ``val.csv`` and ``test.csv`` with the columns filename and label."""
    left_out: list[str] = []
    found: dict[str, str] = {}
    lost: list[str] = []
    names = frozenset(tree.names)
    for table in CSVS:
        if folder + table not in names:
            raise TembedError(f"{tree.path}: {folder}{table} is missing; this layout needs {', '.join(CSVS)}")
        for line, file, label in _rows(tree, folder + table):
            places = (f"{folder}images/{file}", f"{folder}images/{label}/{file}", folder + file)
            place = next((place for place in places if place in names), None)
            if place is None:
                lost.append(f"{table} line {line}: {places[0]} is not there")
            elif place in found:
                raise TembedError(f"{where(tree, folder + table)} line {line} names {file} again: remove one")
            else:
                found[place] = label
    if lost and not skip_broken:
        raise TembedError(
            f"{tree.path}: {lost[0]} ({len(lost)} such rows): add the files, or leave the rows out with --skip-broken"
        )
    left_out.extend(lost)
    classes = tuple(sorted(set(found.values())))
    if not classes:
        raise TembedError(f"{tree.path}: the CSVs name no image")
    number = {label: index for index, label in enumerate(classes)}
    items = [Item(place, number[found[place]], Origin.NONE) for place in sorted(found, key=_by_label(found))]
    blocks = decode_items(tree, items, size, left_out if skip_broken else None, progress)
    return Reading("Mini-ImageNet images with CSVs", classes, blocks, left_out)


def _by_label(found: dict[str, str]) -> Any:
    return lambda place: (found[place], place)


def _rows(tree: Tree, name: str) -> Iterator[tuple[int, str, str]]:
    """Line number, file name and label of each row."""
    try:
        rows = list(csv.DictReader(io.StringIO(read(tree, name).decode("utf-8-sig"), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TembedError(f"{where(tree, name)} is not a readable CSV ({error})") from None
    for line, row in enumerate(rows, start=2):
        file, label = row.get("filename"), row.get("label")
        if not isinstance(file, str) or not isinstance(label, str) or not file or not label:
            raise TembedError(f"{where(tree, name)} line {line}: needs the columns filename and label")
        if one_line(file + label) != file + label:
            raise TembedError(f"{where(tree, name)} line {line}: has control characters")
        yield line, PurePosixPath(file).as_posix(), label


def read_caches(tree: Tree, folder: str, present: list[str], progress: Progress) -> Reading:
    """``mini-imagenet-cache-*.pkl``: ``image_data`` (N, H, W, 3) and ``class_dict``, label to numbers."""
    parts = [_cache(tree, folder + name) for name in present]
    classes = tuple(sorted({label for _, by_class in parts for label in by_class}))
    first = parts[0][0].shape[1:]
    for name, (images, _) in zip(present, parts, strict=True):
        if images.shape[1:] != first:
            raise TembedError(f"{tree.path}: {name} has another image size than {present[0]}")
    return Reading("Mini-ImageNet cached pickles", classes, _cached(parts, classes, progress))


def _cached(
    parts: list[tuple[UInt8, dict[str, Int64]]], classes: tuple[str, ...], progress: Progress
) -> Iterator[Block]:
    for label, name in enumerate(classes):
        for images, by_class in parts:
            numbers = by_class.get(name, np.zeros(0, np.int64))
            if len(numbers):
                yield Block(images[numbers], np.full(len(numbers), label), np.zeros(len(numbers), np.uint8))
        progress.update("copying classes", label + 1, len(classes))


def _cache(tree: Tree, name: str) -> tuple[UInt8, dict[str, Int64]]:
    at = where(tree, name)
    with open_member(tree, name) as stream:
        found = read_pickle(stream, tree.size(name), at)
    images, by_class = found.get("image_data"), found.get("class_dict")
    if not isinstance(images, np.ndarray) or not isinstance(by_class, dict):
        raise TembedError(f"{at} lacks image_data or class_dict: is it a mini-imagenet-cache file?")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise TembedError(f"{at}: image_data is {images.dtype} {images.shape}, expected uint8 (N, H, W, 3)")
    if images.shape[1] != images.shape[2]:
        raise TembedError(f"{at}: images of {images.shape[2]}x{images.shape[1]} are not square")
    taken = np.zeros(len(images), bool)
    checked: dict[str, Int64] = {}
    for label, numbers in by_class.items():
        checked[label] = _numbers(at, label, numbers, taken)
    return images, checked


def _numbers(at: str, label: str, numbers: Any, taken: np.ndarray) -> Int64:
    if isinstance(numbers, np.ndarray):
        numbers = numbers.ravel().tolist()
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise TembedError(f"{at}: class_dict[{label!r}] is not a list of image numbers")
    for number in numbers:
        if not 0 <= number < len(taken) or taken[number]:
            raise TembedError(f"{at}: class_dict[{label!r}] has {number}, which is no image or already taken")
        taken[number] = True
    return np.array(numbers, np.int64)
