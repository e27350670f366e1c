"""``tembed data``: list, get, import, check, show, rename and remove datasets."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tembed.cli.options import read_options
from tembed.common.errors import counted
from tembed.lab.terminal import stderr_progress

if TYPE_CHECKING:
    from tembed.lab.data.store import Stored

FLAGS = {"copy": "--from"}


@dataclass(frozen=True)
class List:
    """Show the datasets that are stored and those that can be fetched."""


@dataclass(frozen=True)
class Get:
    """Store a known dataset from the first source that has it: a copy on disk, a download or a generator."""

    name: Annotated[str, tyro.conf.Positional]
    """one of the names that `tembed data list` shows"""
    copy: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """a copy on disk (folder or archive); no other source is tried (default: the known sources)"""


@dataclass(frozen=True)
class Import:
    """Store a folder or archive of images: class folders, a WebDataset, or the files of CIFAR or Mini-ImageNet.

    An import that ended early goes on where it was.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """the folder, zip or tar, or tars such as 'x-{000..146}.tar'"""
    name: str
    """name of the new dataset"""
    size: int | None = None
    """side of the stored images in pixels (default: the common size of square images, else 224)"""
    fit: Literal["crop", "pad", "stretch"] = "crop"
    """how an oblong image becomes a square: keep the centre, add grey borders, or stretch it"""
    skip_broken: bool = False
    """leave out and list broken images instead of refusing the import"""


@dataclass(frozen=True)
class Check:
    """Verify the checksums of a stored dataset and name exact duplicates."""

    name: Annotated[str, tyro.conf.Positional]
    """a stored dataset"""


@dataclass(frozen=True)
class Show:
    """Write a contact sheet (PNG) with some images of every class."""

    name: Annotated[str, tyro.conf.Positional]
    """a stored dataset"""
    out: Path | None = None
    """the PNG (default: NAME.png in the current folder)"""


@dataclass(frozen=True)
class Rename:
    """Give a stored dataset another name. Runs look for their data by its old name."""

    name: Annotated[str, tyro.conf.Positional]
    """a stored dataset"""
    new: Annotated[str, tyro.conf.Positional]
    """its new name"""


@dataclass(frozen=True)
class Remove:
    """Remove a stored dataset."""

    name: Annotated[str, tyro.conf.Positional]
    """a stored dataset"""


Command = List | Get | Import | Check | Show | Rename | Remove
SHOWN_DUPLICATES = 20


def main(arguments: list[str]) -> int:
    command: Command = read_options(
        Command,  # type: ignore[arg-type]
        "tembed data",
        arguments,
        description="Datasets are stored in $TEMBED_DATA, or else in the user's cache folder.",
    )
    match command:
        case List():
            list_all()
        case Get():
            get(command)
        case Import():
            import_(command)
        case Check():
            check(command)
        case Show():
            show(command)
        case Rename():
            rename(command)
        case Remove():
            remove(command)
    return 0


def list_all() -> None:
    from tembed.common.errors import TembedError
    from tembed.lab.data.catalogue import dataset, list_datasets
    from tembed.lab.data.store import default_root, open_stored, stored_names, unfinished_names

    root = default_root()
    known, stored = list_datasets(), stored_names(root)
    print(f"in {root}:")
    for name in [*known, *(name for name in stored if name not in known)]:
        title = dataset(name).title if name in known else "imported"
        try:
            state = describe(open_stored(root, name)) if name in stored else f"not stored: tembed data get {name}"
        except TembedError as error:  # one damaged dataset must not hide the others
            state = f"damaged: {error}"
        print(f"  {name:<14} {title:<36} {state}")
    for name in unfinished_names(root):
        print(f"  {name:<14} {'unfinished import':<36} run the same command again, or: tembed data remove {name}")


def get(command: Get) -> None:
    from tembed.lab.data.getting import get

    with stderr_progress() as progress:
        stored = get(command.name, copy=command.copy, progress=progress)
    print(f"{stored.folder}: {describe(stored)}")


def import_(command: Import) -> None:
    from tembed.lab.data.importing import import_images

    with stderr_progress() as progress:
        stored = import_images(
            command.path,
            command.name,
            size=command.size,
            fit=command.fit,
            skip_broken=command.skip_broken,
            progress=progress,
        )
    left_out = stored.manifest["left_out"]
    for line in left_out:
        print(f"left out {line}")
    if command.skip_broken:
        print(f"left out {len(left_out)} broken image{'s' * (len(left_out) != 1)}")
    print(f"{stored.folder}: {describe(stored)}")


def check(command: Check) -> None:
    from tembed.lab.data.checking import check

    with stderr_progress() as progress:
        result = check(command.name, progress=progress)
    print(f"{command.name}: {counted(result.count, 'image')}, checksums correct, sha256 {result.sha256}")
    groups, images = counted(result.groups, "group"), counted(result.extra, "image")
    across = f"{result.across_classes} of them across classes"
    print(f"exact duplicates: {groups} ({images} beyond the first of each), {across}")
    for group in result.duplicates[:SHOWN_DUPLICATES]:
        print(f"  {group}")
    if result.groups > SHOWN_DUPLICATES:
        print(f"  and {result.groups - SHOWN_DUPLICATES} more groups; tembed.data.check returns all of them")
    for split, (number, tests) in result.across_splits.items():
        both = f"{counted(number, 'group')}, {counted(tests, 'test image')}"
        print(f"across the {split} split, seed 0: {both} also in train or val")


def show(command: Show) -> None:
    from tembed.lab.data.contact_sheets import contact_sheet

    out = command.out or Path(f"{command.name}.png")
    contact_sheet(command.name, out)
    print(f"wrote {out}")


def rename(command: Rename) -> None:
    from tembed.lab.data.store import rename_dataset

    stored = rename_dataset(command.name, command.new)
    print(f"{stored.folder}: {describe(stored)}; runs on {command.name} look for it by that name")


def remove(command: Remove) -> None:
    from tembed.lab.data.store import remove_dataset

    print(f"removed {remove_dataset(command.name)}")


def describe(stored: "Stored") -> str:
    counts = [int((stored.labels == label).sum()) for label in range(len(stored.classes))]
    each = f"{counts[0]} each" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} each"
    height, width = stored.images.shape[1:3]
    classes = "1 class" if len(counts) == 1 else f"{len(counts):,} classes"
    return f"{counted(len(stored.labels), 'image')} of {width}x{height}, {classes}, {each}"
