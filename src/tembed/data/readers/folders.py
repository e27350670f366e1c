"""Images in one folder per class, optionally below train / val / test folders."""

import unicodedata
from pathlib import PurePosixPath

from tembed.data.readers.archives import Archive
from tembed.data.readers.images import ENDINGS, Item, decode_items
from tembed.data.readers.reading import Origin, Reading
from tembed.errors import TembedError
from tembed.reporting.progress import Progress

SUBSET_FOLDERS = {
    "train": Origin.TRAIN,
    "training": Origin.TRAIN,
    "val": Origin.VAL,
    "valid": Origin.VAL,
    "validation": Origin.VAL,
    "test": Origin.TEST,
    "testing": Origin.TEST,
}


def read_class_folders(archive: Archive, size: int | None, skip_broken: bool, progress: Progress) -> Reading:
    """The class is the first folder, or the one below train / val / test if the top has no other folders."""
    names = [name for name in archive.names if PurePosixPath(name).suffix.lower() in ENDINGS]
    if not names:
        raise TembedError(
            f"{archive.path} has no images in a known layout: expected one folder per class with "
            f"{', '.join(sorted(ENDINGS))} files, or one of the layouts of CIFAR or Mini-ImageNet"
        )
    prefix = _wrapper(names)
    paths = {name: name.removeprefix(prefix).split("/") for name in names}
    tops = {path[0].lower() if len(path) > 1 else "" for path in paths.values()}
    has_split = tops <= set(SUBSET_FOLDERS)
    found: list[tuple[Origin, str, str]] = []
    for name, path in paths.items():
        origin = SUBSET_FOLDERS[path[0].lower()] if has_split else Origin.NONE
        inner = path[1:] if has_split else path
        if len(inner) < 2:
            raise TembedError(
                f"{archive.path}: the image {name} is not in a class folder: put it into one, or remove it"
            )
        found.append((origin, unicodedata.normalize("NFC", inner[0]), name))
    classes = tuple(sorted({class_name for _, class_name, _ in found}))
    label = {class_name: index for index, class_name in enumerate(classes)}
    items = [Item(name, label[class_name], origin) for origin, class_name, name in sorted(found)]
    left_out: list[str] = []
    chunks = decode_items(archive, items, size, left_out if skip_broken else None, progress)
    return Reading("class folders", classes, chunks, left_out)


def _wrapper(names: list[str]) -> str:
    """The folders that contain everything and are not a class themselves, such as an archive's own name."""
    paths = [name.split("/") for name in names]
    depth = 0
    while all(len(path) > depth + 2 for path in paths) and len({path[depth] for path in paths}) == 1:
        if paths[0][depth].lower() in SUBSET_FOLDERS:
            break
        depth += 1
    return "".join(f"{folder}/" for folder in paths[0][:depth])
