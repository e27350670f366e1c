"""Are the stored pixels still those that were imported?

An import hashes the pixels as it writes them and notes the state of the file in ``verified.json``: its size, inode and
times of change. A file in a noted state is not read again. In another state, because it was copied or changed, it is
hashed when it is loaded, and the new state is noted. A folder that cannot be written, or that is in memory (tmpfs), is
hashed each time.

Hashing an array larger than `LARGE` would delay every start on another machine by minutes. If its state is not noted, a
load compares its shape with the manifest and the sums of `SPOTS` images with those of the import. `check` hashes every
byte of any dataset, and notes the state.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tembed.common.arrays import Int64
from tembed.common.errors import TembedError
from tembed.common.files import file_state, is_in_memory, parse_json, read_file, write_json
from tembed.lab.data.npy import array_sha256, take_rows
from tembed.lab.data.store import VERIFIED, Stored
from tembed.lab.data.sums import image_sums

LARGE = 1 << 33
"""Bytes of an array up to which it is hashed when it is loaded."""
SPOTS = 16
"""Images of a larger one that are looked at."""


def verify(stored: Stored, *, again: bool = False) -> list[Path]:
    """Raise `TembedError` if an array is not the one that was stored. ``again``: hash it, however large and known.

    Returns the files that were too large to be hashed.
    """
    arrays: dict[str, np.ndarray] = {"labels": stored.labels, "origin": stored.subsets, "images": stored.images}
    if stored.part_map is not None:
        arrays["part_map"] = stored.part_map
    trust_times = not is_in_memory(stored.folder)
    known = _read(stored.folder) if trust_times and not again else {}
    verified: dict[str, Any] = {}
    not_hashed = []
    for key, array in arrays.items():
        path, digest = stored.folder / f"{key}.npy", stored.manifest["files"].get(key)
        state = _state(path)
        if known.get(key) == [*state, digest]:
            verified[key] = known[key]
        elif array.nbytes > LARGE and not again:
            _check_spots(stored, key, path)
            not_hashed.append(path)
        elif array_sha256(array) != digest:
            raise _changed(stored, path)
        else:  # if the file was replaced meanwhile, it is hashed next time
            verified[key] = [*(state if state == _state(path) else []), digest]
    if trust_times and verified != known:
        _write(stored.folder, verified)
    return not_hashed


def _check_spots(stored: Stored, key: str, path: Path) -> None:
    """Raise `TembedError` if some images do not have the sums that they had when they were imported."""
    sums = stored.sums() if key == "images" else None
    if sums is None:
        return
    spots: Int64 = np.linspace(0, len(stored.images) - 1, SPOTS).astype(np.int64)
    if (image_sums(take_rows(stored.images, spots)) != sums[spots]).any():
        raise _changed(stored, path)


def _changed(stored: Stored, path: Path) -> TembedError:
    return TembedError(
        f"{path} has changed since it was stored (sha256 differs): remove {stored.folder} and get or "
        f"import {stored.name} again"
    )


def _state(path: Path) -> list[int]:
    try:
        return file_state(path)
    except OSError as error:
        raise TembedError(f"{path} cannot be read ({error.strerror})") from None


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
