"""Which folders a piece of code syncs."""

import os
import stat
from pathlib import Path

import pytest


def synced_folders(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """A set to which every folder is added that is synced from now on."""
    found: set[Path] = set()
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            found.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    return found
