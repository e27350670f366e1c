"""``tembed cache``: the cached features of frozen networks."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tembed.cli.options import read_options


@dataclass(frozen=True)
class Cache:
    """List the cached features of frozen networks, or delete them. A run computes them again when it needs them."""

    clear: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[NAME ...]")] = None
    """delete these entries; without names, all of them (default: list them)"""


def main(arguments: list[str]) -> int:
    command = read_options(Cache, "tembed cache", arguments)
    from tembed.common.errors import TembedError
    from tembed.lab.training.feature_cache import cache_root, entries

    found = {entry.folder.name: entry for entry in entries()}
    if command.clear is None:
        for name, entry in found.items():
            print(f"{name}  {entry.bytes / 1e6:10,.1f} MB  {entry.title}")
        total = sum(entry.bytes for entry in found.values())
        print(f"{len(found)} entries, {total / 1e6:,.1f} MB in {cache_root()}")
        return 0
    for name in command.clear:
        if name not in found:
            raise TembedError(f"there is no entry {name!r} in {cache_root()}; tembed cache lists them")
    for name in command.clear or found:
        size = found[name].bytes
        found[name].remove()
        print(f"deleted {name} ({size / 1e6:,.1f} MB)")
    return 0
