"""Images in one folder per class, optionally below train / val / test folders."""

import unicodedata
from pathlib import PurePosixPath

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.images.image_files import ENDINGS, HEIF_ENDINGS, reads_heif
from tembed.lab.data.readers.archives import Archive
from tembed.lab.data.readers.decoding import Decoding, Item
from tembed.lab.data.readers.reading import Options, Reading
from tembed.lab.data.subsets import CODES, UNKNOWN, Subset

INSTALL = "pip install 'tembed[heic]'"
SUBSET_FOLDERS: dict[str, Subset] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def read_class_folders(archive: Archive, options: Options, progress: Progress) -> Reading:
    """The class is the first folder, or the one below train / val / test if the top has no other folders."""
    endings = ENDINGS
    photographs = [name for name in archive.names if _ending(name) in HEIF_ENDINGS]
    if photographs and reads_heif():
        endings |= HEIF_ENDINGS
    names = [name for name in archive.names if _ending(name) in endings]
    if photographs and not names:
        raise TembedError(
            f"{archive.path} has no other images than {photographs[0]} and the like: {INSTALL} to read them"
        )
    if not names:
        raise TembedError(
            f"{archive.path} has no images in a known layout: expected one folder per class with "
            f"{', '.join(sorted(endings))} files, or one of the layouts of CIFAR or Mini-ImageNet"
        )
    prefix = _wrapper(names)
    paths = {name: name.removeprefix(prefix).split("/") for name in names}
    tops = {path[0].lower() if len(path) > 1 else "" for path in paths.values()}
    has_split = tops <= set(SUBSET_FOLDERS)
    subsets = sorted(tops & set(SUBSET_FOLDERS))
    if not has_split and len({SUBSET_FOLDERS[top] for top in subsets}) > 1:
        other = min(tops - set(subsets)) or "an image"
        raise TembedError(
            f"{archive.path} has {' and '.join(subsets)} folders and beside them {other}: move it elsewhere if they "
            "are the subsets of a split, or rename them if they are classes"
        )
    rows: list[tuple[int, str, str]] = []
    for name, path in paths.items():
        subset = CODES[SUBSET_FOLDERS[path[0].lower()]] if has_split else UNKNOWN
        inner = path[1:] if has_split else path
        if len(inner) < 2:
            raise TembedError(
                f"{archive.path}: the image {name} is not in a class folder: put it into one, or remove it"
            )
        rows.append((subset, unicodedata.normalize("NFC", inner[0]), name))
    classes = tuple(sorted({class_name for _, class_name, _ in rows}))
    label = {class_name: index for index, class_name in enumerate(classes)}
    items = [Item(name, label[class_name], subset) for subset, class_name, name in sorted(rows)]
    left_out: list[str] = []
    notes = [*archive.notes, *_skipped(archive, set(names)), *_empty_classes(archive, prefix, has_split, classes)]
    source = Decoding(archive, items, options, left_out, notes, progress)
    return Reading("class folders", classes, source.chunks(), left_out, notes, source)


def _skipped(archive: Archive, images: set[str]) -> list[str]:
    """A line for every kind of file that is not read as an image."""
    kinds: dict[str, list[str]] = {}
    for name in archive.names:
        if name not in images:
            kinds.setdefault(_ending(name), []).append(name)
    lines = []
    for kind, names in sorted(kinds.items()):
        what = f"{kind} file" if kind else "file without an extension"
        many = f"1 {what}: {names[0]}" if len(names) == 1 else f"{len(names)} {what}s, such as {names[0]}"
        how = f"; {INSTALL} to read HEIC" if kind in HEIF_ENDINGS else ""
        lines.append(f"skipped {many}{how}")
    return lines


def _empty_classes(archive: Archive, prefix: str, has_split: bool, classes: tuple[str, ...]) -> list[str]:
    """A line for every folder where a class is expected but that has no image."""
    depth = 2 if has_split else 1
    listed = {*archive.folders, *(name.rpartition("/")[0] for name in archive.names)}
    inside = (folder.removeprefix(prefix).split("/") for folder in listed if folder.startswith(prefix))
    found = {unicodedata.normalize("NFC", path[depth - 1]) for path in inside if len(path) >= depth}
    return [f"class {name!r} has no images and is left out" for name in sorted(found - set(classes) - {""})]


def _ending(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _wrapper(names: list[str]) -> str:
    """The folders that contain everything and are not a class themselves, such as an archive's own name."""
    paths = [name.split("/") for name in names]
    depth = 0
    while all(len(path) > depth + 2 for path in paths) and len({path[depth] for path in paths}) == 1:
        if paths[0][depth].lower() in SUBSET_FOLDERS:
            break
        depth += 1
    return "".join(f"{folder}/" for folder in paths[0][:depth])
