"""``import_images``: recognise the form of any folder or archive of images, read it and store it under a name."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tembed.common.arrays import Fit
from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.catalogue import Dataset, check_name, dataset
from tembed.lab.data.readers import cifar, mini_imagenet
from tembed.lab.data.readers.archives import Archive, skipped_images
from tembed.lab.data.readers.decoding import MAX_SIDE
from tembed.lab.data.readers.folders import read_class_folders
from tembed.lab.data.readers.reading import Chunk, NeedsSize, Options, Reading
from tembed.lab.data.readers.shards import open_source
from tembed.lab.data.readers.webdataset import find_samples, read_samples
from tembed.lab.data.splits import split_indices, usual_split
from tembed.lab.data.store import Stored, default_root, store

DEFAULT_SIZE = 224
UNBALANCED = 5  # images of the largest class for one of the smallest

CIFAR_FILES: tuple[tuple[frozenset[str], Callable[[Archive, str, Progress], Reading]], ...] = (
    (frozenset({"data_batch_1", "test_batch"}), cifar.read_pickles10),
    (frozenset({"train", "test", "meta"}), cifar.read_pickles100),
    (frozenset({"data_batch_1.bin", "test_batch.bin"}), cifar.read_binary10),
    (frozenset({"train.bin", "test.bin"}), cifar.read_binary100),
    (frozenset({"data_batch_1.png", "test_batch.png"}), cifar.read_pngs10),
)
"""The files in one folder that identify a form of CIFAR, and its reader."""


def import_images(
    path: str | Path,
    name: str,
    *,
    size: int | None = None,
    fit: Fit = "crop",
    skip_broken: bool = False,
    root: str | Path | None = None,
    progress: Progress = SILENT,
) -> Stored:
    """Store the images at ``path`` (``docs/data.md`` lists the layouts) as the dataset ``name``.

    ``size``: the side of the stored squares; by default the images keep their size if they are all squares of one
    size of at most 1024, and otherwise become 224 (or the side in the record of that name). ``fit``: how an oblong
    image becomes a square: ``crop`` resizes the shorter side and keeps the centre, ``pad`` resizes the longer side and
    adds grey borders, ``stretch`` resizes both. ``skip_broken``: leave out and list broken images instead of refusing
    the import. A name whose record has a sha256, such as ``cifar10``, takes only the published pixels.
    """
    record = dataset(check_name(name))
    if record.generate is not None:
        raise TembedError(f"{name!r} is generated, not imported: choose another name")
    if size is not None and not 1 <= size <= MAX_SIDE:
        raise TembedError(f"`size` is {size}; it must be between 1 and {MAX_SIDE}")
    if fit not in get_args(Fit):
        raise TembedError(f"`fit` is {fit!r}; it must be one of {', '.join(get_args(Fit))}")
    path, root = Path(path), Path(root) if root is not None else default_root()
    options = Options(size, fit, skip_broken)
    with open_source(path) as archive:
        try:
            stored = _store(archive, record, root, options, progress)
        except NeedsSize as error:
            if size is not None or record.sha256 is not None:
                raise
            side = record.side or DEFAULT_SIZE
            progress.say(f"{str(error).removesuffix(': give `size`')}: every image becomes {side}x{side}")
            stored = _store(archive, record, root, replace(options, size=side), progress)
    for line in (*stored.manifest["notes"], *advice(stored)):
        progress.say(f"note: {line}")
    return stored


def _store(archive: Archive, record: Dataset, root: Path, options: Options, progress: Progress) -> Stored:
    reading = match_record(recognise(archive, options, progress), record, archive.path)
    source = _provenance(archive.path, options)
    return store(root, record.name, reading, source, expected=record.sha256)


def advice(stored: Stored) -> list[str]:
    """What to know about a dataset before training on it, a line each."""
    lines = []
    if len(stored.classes) < 2:
        lines.append(f"there is only one class, {stored.classes[0]!r}: training needs at least 2 class folders")
    split = usual_split(stored)
    try:
        counts = [len(subset) for subset in split_indices(stored, split, seed=0)]
    except TembedError as error:
        return [*lines, str(error)]
    largest, smallest = (take(stored.manifest["class_counts"]) for take in (max, min))
    if largest >= UNBALANCED * smallest:
        lines.append(
            f"the largest class has {largest:,} images and the smallest {smallest:,}; --balanced gives all classes the "
            "same weight in training"
        )
    if split == "official":
        lines.append(
            "the folders say how to split the images, so training uses {:,} for training, {:,} for validation and {:,} "
            "for the test; --split paper would pool them".format(*counts)
        )
    return lines


def recognise(archive: Archive, options: Options = Options(), progress: Progress = SILENT) -> Reading:  # noqa: B008
    """The dataset in this archive. The names of their files identify CIFAR and Mini-ImageNet, at any depth."""
    folders: dict[str, set[str]] = {}
    for name in archive.names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(f"{folder}/" if folder else "", set()).add(file)
    for folder, files in sorted(folders.items(), key=lambda entry: (entry[0].count("/"), entry[0])):
        for marks, reader in CIFAR_FILES:
            if marks <= files:
                _check_side(options, cifar.SIDE)
                return _with_notes(reader(archive, folder, progress), archive, folder)
        if present := [name for name in mini_imagenet.CACHES if name in files]:
            _check_side(options, mini_imagenet.SIDE)
            return _with_notes(mini_imagenet.read_caches(archive, folder, present, progress), archive, folder)
        if "train.csv" in files and (files >= set(mini_imagenet.CSVS) or f"{folder}images/" in folders):
            return mini_imagenet.read_csvs(archive, folder, options, progress)
    if found := find_samples(archive):
        return read_samples(archive, *found, options, progress)
    return read_class_folders(archive, options, progress)


def _check_side(options: Options, side: int) -> None:
    """Raise `TembedError` if another side was asked for than that of images that are stored as arrays."""
    if options.size not in (None, side) or options.fit != Options().fit:
        raise TembedError(
            f"these files hold squares of {side}x{side} pixels, so `size` and `fit` do not apply: leave them out"
        )


def _with_notes(reading: Reading, archive: Archive, folder: str) -> Reading:
    """The reading of a published dataset in this folder, with a note about images that are no part of it."""
    batches = {f"{folder}{name}.png" for name, _ in cifar.FILES10}
    others = (name for name in archive.names if name not in batches)
    kind = reading.kind
    notes = skipped_images(others, f"that is no part of {kind}", f"that are no part of {kind}")
    return replace(reading, notes=[*archive.notes, *reading.notes, *notes])


def match_record(reading: Reading, record: Dataset, path: Path) -> Reading:
    """The reading with the classes in the record's order and, if the record has a sha256, the images in a fixed order.

    That order is train before test, then by class, then by the sha256 of the pixels. It does not depend on the form of
    the files: pickles, binary files, PNGs and class folders give one identical pool, the same splits and one checksum.
    """
    if record.classes and reading.classes != record.classes:
        reading = _relabelled(reading, record, path)
    if record.num_classes not in (None, len(reading.classes)):
        reading.notes.append(f"this copy has {len(reading.classes)} of the {record.num_classes} classes")
    if record.sha256 is None:
        return reading
    chunks = list(reading.chunks)
    if not chunks:  # every image was broken and left out
        return replace(reading, chunks=iter(()), source=None)
    images, labels, subsets = (np.concatenate(column) for column in list(zip(*chunks, strict=True))[:3])
    files = tuple(file for chunk in chunks for file in chunk.files)
    digests = (hashlib.sha256(image.tobytes()).digest() for image in images)
    keys = list(zip(subsets.tolist(), labels.tolist(), digests, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    files = tuple(files[index] for index in order) if files else ()
    return replace(reading, chunks=iter([Chunk(images[order], labels[order], subsets[order], files)]), source=None)


def _relabelled(reading: Reading, record: Dataset, path: Path) -> Reading:
    if sorted(reading.classes) != sorted(record.classes):
        raise TembedError(
            f"{path} has {len(reading.classes)} classes ({', '.join(reading.classes[:3])}, …), which are not "
            f"those of {record.title}: import it under another name"
        )
    label = np.array([record.classes.index(name) for name in reading.classes])
    chunks = (chunk._replace(labels=label[chunk.labels]) for chunk in reading.chunks)
    return replace(reading, classes=record.classes, chunks=chunks)


def _provenance(path: Path, options: Options) -> dict[str, Any]:
    """What the manifest says about where the images came from."""
    source: dict[str, Any] = {"path": path.name or str(path)}
    if path.is_file():
        with path.open("rb") as file:
            source["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return source | ({} if options.size is None else {"size": options.size, "fit": options.fit})
