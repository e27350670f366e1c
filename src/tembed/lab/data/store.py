"""A dataset on disk: one memory-mapped uint8 array, labels, and a manifest.

``<root>/<name>/images.npy`` is ``(N, H, W, 3)``. Beside it are ``labels.npy``, ``origin.npy`` (the subset that the
source put each image in), ``sums.npy``, ``part_map.npy`` if parts are known, ``files.sha256`` if it was imported from
image files, ``manifest.json``, and ``verified.json``, which ``verification`` keeps up to date. Everything is written
into a hidden folder, synced and renamed, so that a dataset is either complete or absent.
"""

import difflib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tembed import __version__
from tembed.common.arrays import Fit, Int64, UInt8
from tembed.common.errors import TembedError
from tembed.common.files import (
    FORBIDDEN,
    FULL,
    Lock,
    add_folder,
    below,
    is_part,
    locked,
    move,
    parse_json,
    read_file,
    sync_folder,
    user_cache,
    write_json,
)
from tembed.lab.data.catalogue import NAME, check_name, dataset, list_datasets
from tembed.lab.data.filelist import FILE_LIST, check_file_list, read_file_list
from tembed.lab.data.npy import array_sha256, write_array
from tembed.lab.data.pool_writer import UNFINISHED, PoolWriter
from tembed.lab.data.readers.reading import Reading, SourceFile
from tembed.lab.data.sums import SUMS, read_sums

FORMAT = 1
DTYPES = {"labels": np.int64}  # all other arrays are uint8
SMALL = ("labels", "origin")  # read and verified whenever a dataset is opened
VERIFIED = "verified.json"
"""The record of `verification`."""
ARRAYS = tuple(f"{key}.npy" for key in ("images", "part_map", *SMALL))
OWN_FILES = frozenset({"manifest.json", VERIFIED, FILE_LIST, SUMS, *ARRAYS})
FIELDS = {"shapes": dict, "files": dict, "classes": list, "class_counts": list, "parts": list, "sha256": str}


def default_root() -> Path:
    """``$TEMBED_DATA``, else ``tembed`` in the user's cache folder."""
    if given := os.environ.get("TEMBED_DATA"):
        return Path(given)
    return user_cache() / "tembed"


@dataclass(frozen=True)
class Stored:
    """A dataset on disk; ``images`` and ``part_map`` are memory-mapped, not read."""

    name: str
    folder: Path
    manifest: dict[str, Any]
    images: UInt8
    labels: Int64
    subsets: UInt8
    part_map: UInt8 | None

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, or what the dataset's record calls them."""
        titles = dataset(self.name).class_titles
        return tuple(titles.get(name, name) for name in self.manifest["classes"])

    @property
    def sha256(self) -> str:
        return str(self.manifest["sha256"])

    @property
    def fit(self) -> Fit:
        """How its oblong images became squares; a new image for a network trained on it should be fitted likewise."""
        found = self.manifest["source"].get("fit")
        return found if found in get_args(Fit) else "crop"

    def sums(self) -> Int64 | None:
        """The `image_sums` of all images; None if the dataset was stored without them."""
        digest = self.manifest.get("sums")
        return None if digest is None else read_sums(self.folder, len(self.labels), str(digest))

    def file_names(self) -> Callable[[], list[str]] | None:
        """Reads the names of the files when they are first needed; None if there is no list. A changed one raises."""
        if (digest := self.manifest.get("file_list")) is None:
            return None
        check_file_list(self.folder, str(digest))
        return cache(lambda: [file.name for file in self.files() or ()])

    def files(self) -> list[SourceFile] | None:
        """The file of each image, read from the list beside the arrays; None if there is none."""
        digest = self.manifest.get("file_list")
        return None if digest is None else read_file_list(self.folder, len(self.labels), str(digest))


def stored_names(root: Path) -> list[str]:
    """The names of the datasets in this root."""
    return sorted(path.parent.name for path in root.glob("*/manifest.json") if NAME.fullmatch(path.parent.name))


def unfinished_names(root: Path) -> list[str]:
    """The names of the datasets whose import ended early and can go on."""
    return sorted(path.parent.name[1:].removesuffix(".unfinished") for path in root.glob(f".*.unfinished/{UNFINISHED}"))


def is_stored(root: Path, name: str) -> bool:
    """Whether this root has a dataset of that name."""
    path = root / check_name(name) / "manifest.json"
    try:
        return path.is_file()
    except OSError as error:
        raise TembedError(f"{path} cannot be read ({error.strerror}): make it readable") from None


def open_stored(root: Path, name: str) -> Stored:
    """Map a stored dataset into memory and check that its files have the shapes in its manifest."""
    if not is_stored(root, name):
        raise TembedError(f"{name!r} is not in {root}: {_way_out(root, name)}")
    folder = root / name
    manifest = _manifest(folder)
    arrays: dict[str, Any] = {}
    for key, shape in manifest["shapes"].items():
        path = folder / f"{key}.npy"
        try:
            arrays[key] = np.load(path, mmap_mode=None if key in SMALL else "r")
            matches = list(arrays[key].shape) == shape and arrays[key].dtype == DTYPES.get(key, np.uint8)
        except Exception as error:  # NumPy's reader raises many types of error on damaged files
            raise TembedError(f"{path} is missing or damaged ({error}): {_again(folder)}") from None
        if not matches or (key in SMALL and array_sha256(arrays[key]) != manifest["files"].get(key)):
            raise TembedError(f"{path} does not match its manifest: {_again(folder)}")
    images, part_map = arrays["images"], arrays.get("part_map")
    found = identity(manifest["classes"], images.shape, manifest["files"], manifest["parts"])
    if found != manifest["sha256"]:
        raise TembedError(f"{folder / 'manifest.json'} has changed since it was stored: {_again(folder)}")
    return Stored(name, folder, manifest, images, arrays["labels"], arrays["origin"], part_map)


def store(
    root: Path,
    name: str,
    reading: Reading,
    source: dict[str, Any],
    part_map: UInt8 | None = None,
    parts: tuple[str, ...] = (),
    expected: str | None = None,
) -> Stored:
    """Write a reading as ``<root>/<name>``. Storing the same pool again is harmless; another pool is refused.

    ``source`` goes into the manifest. ``expected`` is the sha256 that the pool must have.
    """
    with explained(root, name), _hidden_folder(root, check_name(name)) as folder:
        manifest = _write_arrays(folder, name, reading, source, part_map, parts)
        if expected is not None and manifest["sha256"] != expected:
            raise TembedError(
                f"{source.get('path', name)} is not the published {name}: {manifest['count']} images with the "
                f"sha256 {manifest['sha256']}, expected {expected}; fetch a fresh copy, or import it under "
                "another name"
            )
        write_json(folder / "manifest.json", manifest)
        with folder_lock(root):
            (folder / UNFINISHED).unlink(missing_ok=True)
            _rename(folder, root / name, manifest)
    return open_stored(root, name)


def remove_dataset(name: str, root: str | Path | None = None) -> Path:
    """Remove a stored dataset, even a damaged one, and what an unfinished import has left; returns its folder.

    A folder with other files is left alone.
    """
    root = Path(root) if root is not None else default_root()
    folder, aside = root / name, root / f".{name}.partial-{secrets.token_hex(8)}"
    if unfinished := name in unfinished_names(root):
        with explained(root, name, "removed from"), _lock(root, f"{name}.write", lambda: None):
            shutil.rmtree(_unfinished(root, name))
    if not is_stored(root, name):
        if unfinished:
            return folder
        raise TembedError(f"{name!r} is not in {root}, so it cannot be removed: {_stored_there(root)}")
    with explained(root, name, "removed from"), folder_lock(root):
        foreign = sorted(path.name for path in folder.iterdir() if not _is_own(path.name))
        if foreign:
            raise TembedError(f"{folder} also holds {', '.join(foreign[:3])}: move that elsewhere first")
        move(folder, aside)  # the dataset is gone at once, even if removing the files is interrupted
        shutil.rmtree(aside)
    return folder


def _is_own(file: str) -> bool:
    """Whether the store wrote this file; a process that was killed may have left an incomplete record."""
    return file in OWN_FILES or is_part(file, OWN_FILES)


def rename_dataset(name: str, new: str, root: str | Path | None = None) -> Stored:
    """Give a stored dataset another name."""
    root = Path(root) if root is not None else default_root()
    if not is_stored(root, name):
        raise TembedError(f"{name!r} is not in {root}, so it cannot be renamed: {_stored_there(root)}")
    if check_name(new) in list_datasets():
        raise TembedError(f"{new!r} is the name of a known dataset: choose another name")
    with explained(root, name, "renamed in"), folder_lock(root):
        if (root / new).exists():
            raise TembedError(f"{root / new} already exists: choose another name")
        write_json(root / name / "manifest.json", _manifest(root / name) | {"name": new})
        move(root / name, root / new)
    return open_stored(root, new)


def identity(classes: Iterable[str], shape: Iterable[int], files: dict[str, str], parts: Iterable[str] = ()) -> str:
    """One sha256 for the whole pool: classes, shape, the sha256 of every array, and the names of the parts if any."""
    content = [list(classes), list(shape), files, list(parts)]
    return hashlib.sha256(json.dumps(content if parts else content[:3], sort_keys=True).encode()).hexdigest()


@contextmanager
def explained(root: Path, name: str, what: str = "stored in") -> Iterator[None]:
    """Turn an error of the disk into one line with a way out."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            way_out = "free some space there"
        elif error.errno in FORBIDDEN:
            way_out = "make it writable"
        else:
            way_out = "check that path"
        raise TembedError(
            f"{name} cannot be {what} {root} ({error.strerror or error}): {way_out}, or set TEMBED_DATA "
            "to another folder"
        ) from None


def _way_out(root: Path, name: str) -> str:
    if name in list_datasets():
        return f"run `tembed data get {name}`"
    near = difflib.get_close_matches(name, {*list_datasets(), *stored_names(root)}, n=1)
    if near:
        return f"did you mean {near[0]!r}? {_stored_there(root).capitalize()}"
    return f"{_stored_there(root)}; add your own images with `tembed data import PATH --name {name}`"


def _stored_there(root: Path) -> str:
    return f"stored there: {', '.join(stored_names(root)) or 'nothing'}"


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = parse_json(read_file(path))
        version = manifest["format"]
        complete = all(isinstance(manifest.get(key), kind) for key, kind in FIELDS.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): {_again(folder)}") from None
    if version != FORMAT or not complete or not {"images", *SMALL} <= set(manifest["shapes"]):
        raise TembedError(f"{path} is incomplete or not in format {FORMAT}, which this version reads: {_again(folder)}")
    return manifest


def _again(folder: Path) -> str:
    return f"remove {folder} and get or import the dataset again"


def _write_arrays(
    folder: Path,
    name: str,
    reading: Reading,
    source: dict[str, Any],
    part_map: UInt8 | None,
    parts: tuple[str, ...],
) -> dict[str, Any]:
    """Write all arrays and return the manifest that describes them."""
    with PoolWriter(folder, reading.source) as pool:
        for chunk in reading.chunks:
            pool.append(chunk)
    if not pool.images.length:
        raise TembedError(f"{source.get('path', name)} has no readable image: nothing was stored")
    writers = {"images": pool.images, "labels": pool.labels, "origin": pool.origin}
    files = {key: writer.sha256 for key, writer in writers.items()}
    shapes = {key: list(writer.shape) for key, writer in writers.items()}
    if part_map is not None:
        write_array(folder / "part_map.npy", part_map)
        files["part_map"], shapes["part_map"] = array_sha256(part_map), list(part_map.shape)
    if not pool.list.length:
        (folder / FILE_LIST).unlink()
    write_json(folder / VERIFIED, {"images": [*pool.images.state, pool.images.sha256]})
    labels = np.load(folder / "labels.npy")
    counts = np.bincount(labels, minlength=len(reading.classes))
    return {
        "format": FORMAT,
        "name": name,
        "tool": f"tembed {__version__}",
        "source": {"layout": reading.kind} | source,
        "count": len(labels),
        "classes": list(reading.classes),
        "class_counts": counts.tolist(),
        "parts": list(parts),
        "left_out": reading.left_out,
        "notes": reading.notes,
        "shapes": shapes,
        "files": files,
        "sha256": identity(reading.classes, pool.images.shape, files, parts),
        "sums": pool.sums.sha256,
    } | ({"file_list": pool.list.sha256} if pool.list.length else {})


def _rename(folder: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Rename the finished folder to its final name; over an equal dataset, replace file by file."""
    sync_folder(folder)
    try:
        move(folder, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not (target / "manifest.json").is_file():
            raise TembedError(f"{target} is in the way: move it elsewhere, or choose another name") from None
        if _manifest(target)["sha256"] != manifest["sha256"]:
            raise TembedError(
                f"{target} already holds other images: choose another name, or run `tembed data remove {target.name}` "
                "first"
            ) from None
        lists = [FILE_LIST] if "file_list" in manifest else []
        for file in (*(f"{key}.npy" for key in manifest["files"]), SUMS, *lists, "manifest.json"):
            move(folder / file, target / file)


def folder_lock(root: Path) -> AbstractContextManager[Lock]:
    """Wait until no other process renames or removes datasets of a folder, which is made if needed."""
    return _lock(root, "root", lambda: None)


def only_one(root: Path, name: str, waiting: Callable[[], None]) -> AbstractContextManager[Lock]:
    """Let one process at a time get a dataset; ``waiting`` is called if another one does."""
    return _lock(root, f"{name}.get", waiting)


def _lock(root: Path, name: str, waiting: Callable[[], None]) -> AbstractContextManager[Lock]:
    return locked(add_folder(root / ".locks") / name, waiting)


@contextmanager
def _hidden_folder(root: Path, name: str) -> Iterator[Path]:
    """A hidden folder beside the target. After an error it stays if it holds what the next import can go on with.

    What other killed imports and removals left is removed.
    """
    with _lock(root, f"{name}.write", lambda: None):
        for abandoned in root.glob(f".{name}.partial-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        folder = _unfinished(root, name)
        if not (folder / UNFINISHED).exists():
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            add_folder(folder)
        try:
            yield folder
        finally:
            if not (folder / UNFINISHED).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _unfinished(root: Path, name: str) -> Path:
    """The folder of an import that is under way or ended early."""
    return below(root, f".{name}.unfinished")
