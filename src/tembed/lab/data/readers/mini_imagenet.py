"""Mini-ImageNet in its two usual forms: images with three CSVs (Ravi & Larochelle), or cached pickles.

Its published subsets have different classes (64 / 16 / 20, for few-shot learning). The paper pools all 100 (§4), so the
subset that an image came from is not kept.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError, one_line
from tembed.common.progress import Progress
from tembed.lab.data.readers.archives import Archive, open_member, read_member, where
from tembed.lab.data.readers.decoding import Decoding, Item
from tembed.lab.data.readers.pickles import read_pickle
from tembed.lab.data.readers.reading import Chunk, Options, Reading
from tembed.lab.data.subsets import SUBSETS, UNKNOWN

MAX_TABLE = 16 << 20  # bytes of a CSV; the published ones have 1.2 million at most
CSVS = tuple(f"{subset}.csv" for subset in SUBSETS)
SIDE = 84
CACHES = tuple(f"mini-imagenet-cache-{subset}.pkl" for subset in SUBSETS)

Cache = tuple[UInt8, dict[str, Int64]]
"""The images of one pickle, and the positions of each class's images in it."""


def read_csvs(archive: Archive, folder: str, options: Options, progress: Progress) -> Reading:
    """``images/`` beside ``train.csv``, ``val.csv`` and ``test.csv`` with the columns filename and label."""
    label_of: dict[str, str] = {}
    missing: list[str] = []
    names = frozenset(archive.names)
    for table in CSVS:
        if folder + table not in names:
            raise TembedError(f"{archive.path}: {folder}{table} is missing; this layout needs {', '.join(CSVS)}")
        for line, file, label in _rows(archive, folder + table):
            candidates = (f"{folder}images/{file}", f"{folder}images/{label}/{file}", folder + file)
            path = next((path for path in candidates if path in names), None)
            if path is None:
                missing.append(f"{table} line {line}: {candidates[0]} does not exist")
            elif path in label_of:
                raise TembedError(f"{where(archive, folder + table)} line {line} names {file} again: remove one row")
            else:
                label_of[path] = label
    if missing and not options.skip_broken:
        raise TembedError(
            f"{archive.path}: {missing[0]} ({len(missing)} such rows): add the files, or leave out the rows with "
            "`skip_broken`"
        )
    classes = tuple(sorted(set(label_of.values())))
    if not classes:
        raise TembedError(f"{archive.path}: the CSVs name no image")
    number = {label: index for index, label in enumerate(classes)}
    ordered = sorted(label_of, key=lambda path: (label_of[path], path))
    items = [Item(path, number[label_of[path]], UNKNOWN) for path in ordered]
    notes = list(archive.notes)
    unnamed = [name for name in archive.names if name.startswith(f"{folder}images/") and name not in label_of]
    if unnamed:
        notes.append(f"skipped {len(unnamed)} files that no CSV names, such as {unnamed[0]}")
    source = Decoding(archive, items, options, missing, notes, progress)
    return Reading("Mini-ImageNet images with CSVs", classes, source.chunks(), missing, notes, source)


def read_caches(archive: Archive, folder: str, present: list[str], progress: Progress) -> Reading:
    """``mini-imagenet-cache-*.pkl``: ``image_data`` (N, H, W, 3), and ``class_dict`` from labels to positions."""
    caches = [_read_cache(archive, folder + name) for name in present]
    classes = tuple(sorted({label for _, by_class in caches for label in by_class}))
    first = caches[0][0].shape[1:]
    for name, (images, _) in zip(present, caches, strict=True):
        if images.shape[1:] != first:
            raise TembedError(f"{archive.path}: {name} has another image size than {present[0]}")
    total = sum(len(images) for images, _ in caches)
    unnamed = total - sum(len(positions) for _, by_class in caches for positions in by_class.values())
    notes = [f"skipped {unnamed} of {total} images, which no class names"] if unnamed else []
    return Reading("Mini-ImageNet cached pickles", classes, _cached_chunks(caches, classes, progress), notes=notes)


def _rows(archive: Archive, name: str) -> Iterator[tuple[int, str, str]]:
    """Line number, file name and label of each row."""
    text = read_member(archive, name, MAX_TABLE)
    try:
        rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TembedError(f"{where(archive, name)} is not a readable CSV ({error})") from None
    for line, row in enumerate(rows, start=2):
        file, label = row.get("filename"), row.get("label")
        if not isinstance(file, str) or not isinstance(label, str) or not file or not label:
            raise TembedError(f"{where(archive, name)} line {line}: needs the columns filename and label")
        if one_line(file + label) != file + label:
            raise TembedError(f"{where(archive, name)} line {line}: has control characters")
        yield line, PurePosixPath(file).as_posix(), label


def _cached_chunks(caches: list[Cache], classes: tuple[str, ...], progress: Progress) -> Iterator[Chunk]:
    for label, name in enumerate(classes):
        for images, by_class in caches:
            positions = by_class.get(name, np.zeros(0, np.int64))
            if len(positions):
                yield Chunk(images[positions], np.full(len(positions), label), np.zeros(len(positions), np.uint8))
        progress.update("copying classes", label + 1, len(classes))


def _read_cache(archive: Archive, name: str) -> Cache:
    at = where(archive, name)
    with open_member(archive, name) as stream:
        found = read_pickle(stream, archive.size(name), at)
    images, by_class = found.get("image_data"), found.get("class_dict")
    if not isinstance(images, np.ndarray) or not isinstance(by_class, dict):
        raise TembedError(f"{at} lacks image_data or class_dict: is it a mini-imagenet-cache file?")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise TembedError(f"{at}: image_data is {images.dtype} {images.shape}, expected uint8 (N, H, W, 3)")
    if images.shape[1] != images.shape[2]:
        raise TembedError(f"{at}: images of {images.shape[2]}x{images.shape[1]} are not square")
    taken = np.zeros(len(images), bool)
    return images, {label: _positions(at, label, numbers, taken) for label, numbers in by_class.items()}


def _positions(at: str, label: str, numbers: Any, taken: np.ndarray) -> Int64:
    """The positions of a class's images, each of them valid and used once."""
    if isinstance(numbers, np.ndarray):
        numbers = numbers.ravel().tolist()
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
        raise TembedError(f"{at}: class_dict[{label!r}] is not a list of image numbers")
    for number in numbers:
        if not 0 <= number < len(taken) or taken[number]:
            raise TembedError(f"{at}: class_dict[{label!r}] has {number}, which is not an image or is already taken")
        taken[number] = True
    return np.array(numbers, np.int64)
