"""A dataset on disk: one uint8 array that is mapped into memory, labels, and a manifest.

``<root>/<name>/images.npy`` is ``(N, H, W, 3)``; beside it ``labels.npy``, ``origin.npy`` (``Origin`` of each
image), perhaps ``part_map.npy``, and ``manifest.json``. Everything is written into a hidden folder
aside, synced and renamed, so that a dataset is either whole or absent.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tembed import __version__
from tembed.arrays import Int64, UInt8
from tembed.data.catalogue import KNOWN
from tembed.data.npy import NpyWriter, array_sha256, write_array
from tembed.data.readers.reading import Reading
from tembed.errors import TembedError
from tembed.files import FORBIDDEN, FULL, sync_folder

FORMAT = 1
DTYPES = {"labels": np.int64}  # all others are uint8
SMALL = ("labels", "origin")  # read and verified whenever a dataset is opened
FIELDS = {"shapes": dict, "files": dict, "classes": list, "class_counts": list, "parts": list, "sha256": str}
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def default_root() -> Path:
    """``$TEMBED_DATA``, else ``tembed`` in the user's cache folder."""
    if given := os.environ.get("TEMBED_DATA"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tembed"


@dataclass(frozen=True)
class Stored:
    """A dataset as it lies on disk; ``images`` and ``part_map`` are mapped, not read."""

    name: str
    folder: Path
    manifest: dict[str, Any]
    images: UInt8
    labels: Int64
    origin: UInt8
    part_map: UInt8 | None

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.manifest["classes"])

    @property
    def sha256(self) -> str:
        return str(self.manifest["sha256"])


def check_name(name: str) -> str:
    """The name itself, if it can be a folder's name."""
    if not NAME.fullmatch(name):
        raise TembedError(f"{name!r} is no name for a dataset: use a-z, 0-9, '.', '_' and '-', at most 64")
    return name


def stored_names(root: Path) -> list[str]:
    """What is whole in this root."""
    return sorted(path.parent.name for path in root.glob("*/manifest.json") if NAME.fullmatch(path.parent.name))


def is_stored(root: Path, name: str) -> bool:
    path = root / check_name(name) / "manifest.json"
    try:
        return path.is_file()
    except OSError as error:
        raise TembedError(f"{path} cannot be read ({error.strerror}): make it readable") from None


def open_stored(root: Path, name: str) -> Stored:
    """Maps a stored dataset, and checks that its files are the sizes that its manifest says."""
    if not is_stored(root, name):
        raise TembedError(f"{name!r} is not in {root}: {_way_out(root, name)}")
    folder = root / name
    manifest = _manifest(folder)
    arrays: dict[str, Any] = {}
    for key, shape in manifest["shapes"].items():
        path = folder / f"{key}.npy"
        try:
            arrays[key] = np.load(path, mmap_mode=None if key in SMALL else "r")
            right = list(arrays[key].shape) == shape and arrays[key].dtype == DTYPES.get(key, np.uint8)
        except Exception as error:  # NumPy's reader raises many types on damaged files
            raise TembedError(f"{path} is missing or damaged ({error}): {_again(folder)}") from None
        if not right or (key in SMALL and array_sha256(arrays[key]) != manifest["files"].get(key)):
            raise TembedError(f"{path} is not what its manifest says: {_again(folder)}")
    images, part_map = arrays["images"], arrays.get("part_map")
    found = identity(manifest["classes"], images.shape, manifest["files"], manifest["parts"])
    if found != manifest["sha256"]:
        raise TembedError(f"{folder / 'manifest.json'} has changed since it was stored: {_again(folder)}")
    return Stored(name, folder, manifest, images, arrays["labels"], arrays["origin"], part_map)


def _way_out(root: Path, name: str) -> str:
    if name in KNOWN:
        return f"run `tembed data get {name}`"
    have = ", ".join(stored_names(root)) or "nothing"
    return f"that holds {have}; add your own images with `tembed data import PATH --name {name}`"


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text("utf-8"))
        found = manifest["format"]
        whole = all(isinstance(manifest.get(key), kind) for key, kind in FIELDS.items())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): {_again(folder)}") from None
    if found != FORMAT or not whole or not {"images", *SMALL} <= set(manifest["shapes"]):
        raise TembedError(f"{path} is incomplete or not of format {FORMAT}, which this version reads: {_again(folder)}")
    return manifest


def _again(folder: Path) -> str:
    return f"remove {folder} and get or import the dataset again"


def identity(classes: Iterable[str], shape: Iterable[int], files: dict[str, str], parts: Iterable[str] = ()) -> str:
    """One sha256 for the whole pool: its classes, its shape, every array, and the parts' names if any."""
    content = [list(classes), list(shape), files, list(parts)]
    return hashlib.sha256(json.dumps(content if parts else content[:3], sort_keys=True).encode()).hexdigest()


def store(
    root: Path,
    name: str,
    reading: Reading,
    source: dict[str, Any],
    part_map: UInt8 | None = None,
    parts: tuple[str, ...] = (),
    expected: str | None = None,
) -> Stored:
    """Writes a reading as ``<root>/<name>``. Storing the same pool again is harmless; another is refused.

    ``expected``: the sha256 that the pool must have.
    """
    with explained(root, name), _aside(root, check_name(name)) as folder:
        labels, origin = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
        with NpyWriter(folder / "images.npy") as writer:
            for block in reading.blocks:
                writer.append(block.images)
                labels.append(block.labels)
                origin.append(block.origin)
        if not writer.count:
            raise TembedError(f"{source.get('path', name)} has no readable image: nothing was stored")
        arrays: dict[str, Any] = {"labels": np.concatenate(labels), "origin": np.concatenate(origin)}
        if part_map is not None:
            arrays["part_map"] = part_map
        for key, array in arrays.items():
            write_array(folder / f"{key}.npy", array)
        shapes = {"images": list(writer.shape)} | {key: list(array.shape) for key, array in arrays.items()}
        files = {"images": writer.sha256} | {key: array_sha256(array) for key, array in arrays.items()}
        counts = np.bincount(arrays["labels"], minlength=len(reading.classes))
        manifest = {
            "format": FORMAT,
            "name": name,
            "tool": f"tembed {__version__}",
            "source": {"layout": reading.layout} | source,
            "count": writer.count,
            "classes": list(reading.classes),
            "class_counts": counts.tolist(),
            "parts": list(parts),
            "left_out": reading.left_out,
            "shapes": shapes,
            "files": files,
            "sha256": identity(reading.classes, writer.shape, files, parts),
        }
        if expected is not None and manifest["sha256"] != expected:
            raise TembedError(
                f"{source.get('path', name)} is not the published {name}: {writer.count} images with the "
                f"sha256 {manifest['sha256']}, expected {expected}; fetch a fresh copy, or import it under "
                "another name"
            )
        with (folder / "manifest.json").open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _settle(folder, root / name, manifest)
    return open_stored(root, name)


def _settle(folder: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Renames the finished folder into place; over an equal dataset each file replaces its equal."""
    sync_folder(folder)
    try:
        os.rename(folder, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not (target / "manifest.json").is_file():
            raise TembedError(f"{target} is in the way: move it elsewhere, or choose another name") from None
        if _manifest(target)["sha256"] != manifest["sha256"]:
            raise TembedError(
                f"{target} already holds other images: choose another name, or remove that folder first"
            ) from None
        for key in (*manifest["files"], "manifest"):
            file = f"{key}.json" if key == "manifest" else f"{key}.npy"
            os.replace(folder / file, target / file)
    sync_folder(target.parent)


@contextmanager
def _aside(root: Path, name: str) -> Iterator[Path]:
    """A hidden folder beside the target, removed unless it was renamed; those of killed runs go too."""
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob(f".{name}.partial-*"):
        _remove_if_dead(left)
    folder = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=root))
    folder.chmod(0o777 & ~_umask())
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_dead(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another import is writing there
        return
    finally:
        os.close(lock)
    shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def explained(root: Path, name: str) -> Iterator[None]:
    """Turns what the disk says into one line with a way out."""
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
            f"{name} cannot be stored in {root} ({error.strerror or error}): {way_out}, or set TEMBED_DATA "
            "to another folder"
        ) from None
