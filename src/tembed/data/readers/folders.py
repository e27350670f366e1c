"""Images in one folder per class, with or without train / val / test folders above them."""

import unicodedata
from pathlib import PurePosixPath

from tembed.data.readers.archives import Tree
from tembed.data.readers.images import ENDINGS, Item, decode_items
from tembed.data.readers.reading import Origin, Reading
from tembed.errors import TembedError
from tembed.reporting.progress import Progress

SPLIT_FOLDERS = {
    "train": Origin.TRAIN,
    "training": Origin.TRAIN,
    "val": Origin.VAL,
    "valid": Origin.VAL,
    "validation": Origin.VAL,
    "test": Origin.TEST,
    "testing": Origin.TEST,
}


def read_class_folders(tree: Tree, size: int | None, skip_broken: bool, progress: Progress) -> Reading:
    """The class is the first folder (below train / val / test, if those are all there is at the top)."""
    names = [name for name in tree.names if PurePosixPath(name).suffix.lower() in ENDINGS]
    if not names:
        raise TembedError(
            f"{tree.path} has no images in a known layout: expected one folder per class with "
            f"{', '.join(sorted(ENDINGS))} files, or one of the layouts of CIFAR or Mini-ImageNet"
        )
    prefix = _wrapper(names)
    parts = {name: name.removeprefix(prefix).split("/") for name in names}
    tops = {path[0].lower() if len(path) > 1 else "" for path in parts.values()}
    split_at_top = tops <= set(SPLIT_FOLDERS)
    items: list[tuple[str, Origin, str]] = []
    for name, path in parts.items():
        origin = SPLIT_FOLDERS[path[0].lower()] if split_at_top else Origin.NONE
        inner = path[1:] if split_at_top else path
        if len(inner) < 2:
            raise TembedError(f"{tree.path}: the image {name} lies in no class folder: put it into one, or remove it")
        items.append((unicodedata.normalize("NFC", inner[0]), origin, name))
    classes = tuple(sorted({item[0] for item in items}))
    label = {name: index for index, name in enumerate(classes)}
    order = sorted(items, key=lambda item: (item[1], item[0], item[2]))
    left_out: list[str] = []
    blocks = decode_items(
        tree,
        [Item(name, label[name_of_class], origin) for name_of_class, origin, name in order],
        size,
        left_out if skip_broken else None,
        progress,
    )
    return Reading("class folders", classes, blocks, left_out)


def _wrapper(names: list[str]) -> str:
    """The folders that hold everything and are not a class themselves, such as an archive's own name."""
    paths = [name.split("/") for name in names]
    depth = 0
    while all(len(path) > depth + 2 for path in paths) and len({path[depth] for path in paths}) == 1:
        if paths[0][depth].lower() in SPLIT_FOLDERS:
            break
        depth += 1
    return "".join(f"{folder}/" for folder in paths[0][:depth])
