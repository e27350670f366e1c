"""Feature maps of frozen networks on disk, which are computed once and shared by all runs that need the same ones.

``<root>/<key>/about.json`` says what an entry holds. Each array ``NAME.npy`` is complete once ``NAME.json`` with its
checksum is beside it, so an interrupted extraction continues with the first array that is missing. It also notes the
state of the array (size, inode, times of change): an array in that state is not hashed again.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tembed.common.errors import TembedError, first_line
from tembed.common.files import (
    InUse,
    explained,
    file_state,
    is_in_memory,
    locked,
    make_folder,
    move,
    open_file,
    read_json,
    user_cache,
    write_json,
)

HALF = np.dtype(np.float16)
RESERVE = 2**28
"""Bytes of the disk that stay free."""


def cache_root() -> Path:
    """``$TEMBED_CACHE``, else ``tembed-features`` in the user's cache folder."""
    if given := os.environ.get("TEMBED_CACHE"):
        return Path(given)
    return user_cache() / "tembed-features"


def entry_key(about: dict[str, Any]) -> str:
    """The name of the entry for these plain values: a hash of all of them."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Entry:
    """One folder of the cache."""

    folder: Path

    @property
    def about(self) -> dict[str, Any]:
        return read_json(self.folder / "about.json")

    @property
    def title(self) -> str:
        """What the entry holds, for a list of all."""
        try:
            about = self.about
            return f"{about['model']} on {about['data']}"
        except (TembedError, KeyError, TypeError):
            return "unknown, because its about.json is damaged; the next run that needs it writes it again"

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @contextmanager
    def opened(self, about: dict[str, Any], wait: Callable[[], None]) -> Iterator[None]:
        """Make the folder and hold its lock, so that runs that need the same features compute them once.

        ``wait`` is called again and again while another process holds it.
        """
        with ExitStack() as stack:
            while True:
                make_folder(self.folder)
                try:
                    stack.enter_context(locked(self.folder / "lock"))
                    break
                except InUse:
                    wait()
            try:
                known = self.about == about
            except TembedError:
                known = False
            if not known:
                write_json(self.folder / "about.json", about)
            yield

    def read(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float16] | str:
        """An array of this shape, memory-mapped, or why there is none; an empty reason if it was never written."""
        path, record = self.folder / f"{name}.npy", self.folder / f"{name}.json"
        if not (path.exists() and record.exists()):
            return ""
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            if found.shape != shape or found.dtype != HALF:
                return f"{path} has the shape {found.shape}, not {shape}"
            known, state = read_json(record), file_state(path)
            if known.get("state") != state or is_in_memory(self.folder):
                if _sha256(path) != known["sha256"]:
                    return f"{path} does not match its checksum"
                with suppress(TembedError):  # the folder may be read-only
                    write_json(record, known | {"state": state})
        except (KeyError, TypeError, AttributeError, TembedError):
            return f"{record} is damaged"
        except Exception as error:  # NumPy's reader raises many types of error on damaged files
            return f"{path} cannot be read ({first_line(error)})"
        return found

    def check_space(self, names: list[str], shape: tuple[int, ...]) -> None:
        """Raise `TembedError` if arrays of these lengths do not fit on the disk."""
        needed = len(names) * int(np.prod(shape)) * HALF.itemsize
        free = shutil.disk_usage(self.folder).free - RESERVE
        if needed > free:
            raise TembedError(_full(self.folder, needed, max(0, free)))

    @contextmanager
    def writing(self, name: str, shape: tuple[int, ...]) -> Iterator[NDArray[np.float16]]:
        """An array to fill. It is kept if the block ends without an error."""
        path, record = self.folder / f"{name}.npy", self.folder / f"{name}.json"
        part = path.with_name(f"{name}.npy.part")
        needed = int(np.prod(shape)) * HALF.itemsize
        try:
            for old in (record, part):
                old.unlink(missing_ok=True)
            with explained(path):
                try:
                    with open_file(part, "wb") as file:
                        header = {"descr": HALF.str, "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(file, header)
                        file.flush()  # reserve the space: writing to a sparse file would end the process
                        os.posix_fallocate(file.fileno(), 0, file.tell() + needed)
                    array = np.load(part, mmap_mode="r+")
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    raise TembedError(_full(self.folder, needed, shutil.disk_usage(self.folder).free)) from None
            yield array
            array.flush()
            with explained(path):
                move(part, path)
                state = file_state(path)
            write_json(record, {"sha256": _sha256(path), "state": state})
        finally:
            part.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the entry. Raises `InUse` if a run is using it."""
        with locked(self.folder / "lock"):
            shutil.rmtree(self.folder)


def entries() -> list[Entry]:
    """All entries, sorted by name."""
    root = cache_root()
    return [Entry(path.parent) for path in sorted(root.glob("*/about.json"))] if root.is_dir() else []


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _full(folder: Path, needed: int, free: int) -> str:
    return (
        f"the features need {needed / 1e9:.1f} GB and {folder.parent} has room for {free / 1e9:.1f} GB: free some "
        "space (tembed cache --clear), set TEMBED_CACHE to another disk, or give fewer `train_images`"
    )
