"""Any folder or archive of images into the store, under a name."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tembed.data.catalogue import KNOWN, Known
from tembed.data.readers import cifar, mini_imagenet
from tembed.data.readers.archives import Tree, open_tree
from tembed.data.readers.folders import read_class_folders
from tembed.data.readers.reading import Block, Reading
from tembed.data.splits import FEWEST
from tembed.data.storage import Stored, check_name, default_root, store
from tembed.errors import TembedError
from tembed.reporting.progress import SILENT, Progress

CIFAR_MARKS: tuple[tuple[frozenset[str], Callable[[Tree, str, Progress], Reading]], ...] = (
    (frozenset({"data_batch_1", "test_batch"}), cifar.read_pickles10),
    (frozenset({"train", "test", "meta"}), cifar.read_pickles100),
    (frozenset({"data_batch_1.bin", "test_batch.bin"}), cifar.read_binary10),
    (frozenset({"train.bin", "test.bin"}), cifar.read_binary100),
    (frozenset({"data_batch_1.png", "test_batch.png"}), cifar.read_pngs10),
)


def recognise(tree: Tree, size: int | None = None, skip_broken: bool = False, progress: Progress = SILENT) -> Reading:
    """The dataset in this tree. CIFAR and Mini-ImageNet are known by their files' names, at any depth."""
    folders: dict[str, set[str]] = {}
    for name in tree.names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(f"{folder}/" if folder else "", set()).add(file)
    for folder, files in sorted(folders.items(), key=lambda entry: (entry[0].count("/"), entry[0])):
        for marks, reader in CIFAR_MARKS:
            if marks <= files:
                return reader(tree, folder, progress)
        if present := [name for name in mini_imagenet.CACHES if name in files]:
            return mini_imagenet.read_caches(tree, folder, present, progress)
        if "train.csv" in files and (files >= set(mini_imagenet.CSVS) or f"{folder}images/" in folders):
            return mini_imagenet.read_csvs(tree, folder, size, skip_broken, progress)
    return read_class_folders(tree, size, skip_broken, progress)


MAX_SIZE = 1024


def import_images(
    path: str | Path,
    name: str,
    *,
    size: int | None = None,
    skip_broken: bool = False,
    root: str | Path | None = None,
    progress: Progress = SILENT,
) -> Stored:
    """Stores the images at ``path`` (see ``docs/data.md`` for the layouts) as the dataset ``name``.

    ``size``: resize the shorter side to it and keep the square middle. ``skip_broken``: leave out and list
    broken images instead of refusing the import. The names ``cifar10`` and ``cifar100`` take only the
    published pixels.
    """
    if check_name(name) == "parts":
        raise TembedError("'parts' is generated, not imported: choose another name")
    if size is not None and not 1 <= size <= MAX_SIZE:
        raise TembedError(f"--size {size} is not between 1 and {MAX_SIZE}")
    path, root = Path(path), Path(root) if root is not None else default_root()
    with open_tree(path) as tree:
        reading = recognise(tree, size, skip_broken, progress)
        known = KNOWN.get(name, Known(name))
        if known.identity is not None:
            reading = published(reading, known, path)
        stored = store(root, name, reading, source_of(path, size), expected=known.identity)
    for class_name, count in zip(stored.classes, stored.manifest["class_counts"], strict=True):
        if count < FEWEST:
            progress.say(f"note: class {class_name!r} has {count} images, too few to split (at least {FEWEST})")
    return stored


def source_of(path: Path, size: int | None) -> dict[str, Any]:
    """What the manifest says about where the images came from."""
    source: dict[str, Any] = {"path": path.name or str(path)}
    if path.is_file():
        with path.open("rb") as file:
            source["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return source | ({} if size is None else {"size": size})


def published(reading: Reading, known: Known, path: Path) -> Reading:
    """The same reading in the one order that does not depend on the files' form, if it is the published set.

    Train before test, by class, by the sha256 of the pixels: pickles, binary files, PNGs and folders of
    images then give one identical pool, hence identical splits, and one checksum to pin.
    """
    if reading.classes != known.classes:
        raise TembedError(
            f"{path} has {len(reading.classes)} classes ({', '.join(reading.classes[:3])}, …), which are not "
            f"those of {known.title}: import it under another name"
        )
    blocks = list(reading.blocks)
    whole = Block(
        np.concatenate([block.images for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate([block.origin for block in blocks]),
    )
    digests = (hashlib.sha256(image.tobytes()).digest() for image in whole.images)
    keys = list(zip(whole.origin.tolist(), whole.labels.tolist(), digests, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = Block(whole.images[order], whole.labels[order], whole.origin[order])
    return replace(reading, blocks=iter([ordered]))
