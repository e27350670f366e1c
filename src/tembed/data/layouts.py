"""Finds out which of the known layouts a folder or archive has, and reads it."""

from collections.abc import Callable

from tembed.data import cifar, mini_imagenet
from tembed.data.folders import read_class_folders
from tembed.data.reading import Reading
from tembed.data.reporting import SILENT, Reporter
from tembed.data.trees import Tree

CIFAR_MARKS: tuple[tuple[frozenset[str], Callable[[Tree, str, Reporter], Reading]], ...] = (
    (frozenset({"data_batch_1", "test_batch"}), cifar.read_pickles10),
    (frozenset({"train", "test", "meta"}), cifar.read_pickles100),
    (frozenset({"data_batch_1.bin", "test_batch.bin"}), cifar.read_binary10),
    (frozenset({"train.bin", "test.bin"}), cifar.read_binary100),
    (frozenset({"data_batch_1.png", "test_batch.png"}), cifar.read_pngs10),
)


def recognise(
    tree: Tree, size: int | None = None, skip_broken: bool = False, reporter: Reporter = SILENT
) -> Reading:
    """The dataset in this tree. CIFAR and Mini-ImageNet are known by their files' names, at any depth."""
    folders: dict[str, set[str]] = {}
    for name in tree.names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(f"{folder}/" if folder else "", set()).add(file)
    for folder, files in sorted(folders.items(), key=lambda entry: (entry[0].count("/"), entry[0])):
        for marks, reader in CIFAR_MARKS:
            if marks <= files:
                return reader(tree, folder, reporter)
        if present := [name for name in mini_imagenet.CACHES if name in files]:
            return mini_imagenet.read_caches(tree, folder, present, reporter)
        if "train.csv" in files and (files >= set(mini_imagenet.CSVS) or f"{folder}images/" in folders):
            return mini_imagenet.read_csvs(tree, folder, size, skip_broken, reporter)
    return read_class_folders(tree, size, skip_broken, reporter)
