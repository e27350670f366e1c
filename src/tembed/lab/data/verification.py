"""Are the stored pixels still those that were imported?

Hashing 60,000 images of 32x32 takes a fraction of a second, but larger data takes longer. So each file is hashed once
for each state of it: its size, inode and times of change are noted in ``verified.json`` beside it. A folder that cannot
be written, or that is in memory (tmpfs), is hashed each time.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tembed.common.errors import TembedError
from tembed.common.files import parse_json, read_file, write_json
from tembed.lab.data.npy import array_sha256
from tembed.lab.data.store import VERIFIED, Stored


def verify(stored: Stored, *, again: bool = False) -> None:
    """Raise `TembedError` if an array is not the one that was stored. ``again``: hash it even in a known state."""
    arrays: dict[str, np.ndarray] = {"labels": stored.labels, "origin": stored.subsets, "images": stored.images}
    if stored.part_map is not None:
        arrays["part_map"] = stored.part_map
    trust_times = not is_in_memory(stored.folder)
    known = _read(stored.folder) if trust_times and not again else {}
    verified: dict[str, Any] = {}
    for key, array in arrays.items():
        path, digest = stored.folder / f"{key}.npy", stored.manifest["files"].get(key)
        state = _state(path)
        if known.get(key) != [*state, digest]:
            if array_sha256(array) != digest:
                raise TembedError(
                    f"{path} has changed since it was stored (sha256 differs): remove {stored.folder} and get or "
                    f"import {stored.name} again"
                )
            state = state if state == _state(path) else []  # it was replaced meanwhile, so hash it next time
        verified[key] = [*state, digest]
    if trust_times and verified != known:
        _write(stored.folder, verified)


def _state(path: Path) -> list[int]:
    """On disk, whatever changes the bytes of a file changes its time of status change, which no program can set."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise TembedError(f"{path} cannot be read ({error.strerror})") from None
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a folder is on a file system in memory, where writing through a memory map changes no time."""
    try:
        device, lines = os.stat(folder).st_dev, mounts.read_text("utf-8", "replace").splitlines()
    except OSError:  # not on Linux
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split()[:1] for line in lines if line.split()[2:3] == [name]]
    return ["tmpfs"] in kinds or ["ramfs"] in kinds


def _read(folder: Path) -> dict[str, Any]:
    try:
        known = parse_json(read_file(folder / VERIFIED))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(folder: Path, verified: dict[str, Any]) -> None:
    """Note what was verified. The folder may be read-only."""
    with suppress(TembedError):
        write_json(folder / VERIFIED, verified)
