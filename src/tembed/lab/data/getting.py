"""``get``: store a known dataset from the first source that has it.

The order is: already stored; generated, if its record says so; a copy on disk under a usual name; the sources of its
record. A source that fails says so in one line, and the next is tried.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.catalogue import Dataset, Fetcher, dataset, list_datasets
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import Stored, default_root, explained, is_stored, only_one, open_stored, store


def get(
    name: str,
    *,
    copy: str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress = SILENT,
) -> Stored:
    """The dataset ``name``, stored in ``root``. With ``copy``, that path is the only source that is tried."""
    if name not in list_datasets():
        raise TembedError(
            f"{name!r} is not one of {', '.join(list_datasets())}: for your own images use "
            f"`tembed data import PATH --name {name}`"
        )
    root = Path(root) if root is not None else default_root()
    record = dataset(name)
    if is_stored(root, name):
        return open_stored(root, name)
    if record.generate is not None:
        if copy is not None:
            raise TembedError(f"{name!r} is generated, so `copy` ({copy}) does not apply: leave it out")
        return _generate(record, root, progress)
    failures: list[str] = []
    for attempt in _attempts(record, root, None if copy is None else Path(copy), progress):
        try:
            return attempt()
        except TembedError as error:
            failures.append(str(error))
            progress.say(failures[-1])
    final = TembedError(f"no source is left for {name}: {_way_out(record, root)}")
    for failure in failures:
        final.add_note(failure)
    raise final


def open_dataset(name: str, root: str | Path | None = None) -> Stored:
    """A stored dataset. A generated one is made on first use; others must be stored by `get` or `import_images`."""
    root = Path(root) if root is not None else default_root()
    return open_stored(root, name) if dataset(name).generate is None else get(name, root=root)


def stored_side(name: str, root: str | Path | None = None) -> int | None:
    """The shorter side of a dataset's images in pixels; None if that is not known before it is stored."""
    root = Path(root) if root is not None else default_root()
    return min(open_stored(root, name).images.shape[1:3]) if is_stored(root, name) else dataset(name).side


def copies(record: Dataset, root: Path, copy: Path | None) -> Iterator[Path]:
    """Paths of copies on disk: ``copy`` or a usual name inside it; without it, usual names in the usual folders."""
    if copy is not None:
        inside = [_whole(copy, usual) for usual in record.file_names if (copy / usual).exists()]
        yield from dict.fromkeys(inside or [copy])
        return
    folders = [root, Path(os.environ.get("TEMBED_DATA") or root), Path.cwd()]
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        for usual in record.file_names:
            if (folder / usual).exists() and not (folder / usual / "manifest.json").exists():
                yield _whole(folder, usual)


def _whole(folder: Path, usual: str) -> Path:
    """What to read if a folder holds a file of this usual name. A pickle is one of several files: read the folder."""
    return folder if usual.endswith(".pkl") else folder / usual


def _attempts(record: Dataset, root: Path, copy: Path | None, progress: Progress) -> Iterator[Callable[[], Stored]]:
    for path in copies(record, root, copy):
        yield partial(_read_copy, path, record.name, root, progress)
    for fetcher in record.sources if copy is None else ():
        yield partial(_fetch, fetcher, record.name, root, progress)


def _read_copy(path: Path, name: str, root: Path, progress: Progress) -> Stored:
    progress.say(f"reading {path}")
    return import_images(path, name, root=root, progress=progress)


def _fetch(fetcher: Fetcher, name: str, root: Path, progress: Progress) -> Stored:
    def waiting() -> None:
        progress.say(f"another process is fetching {name}: waiting for it")

    with explained(root, name), only_one(root, name, waiting):
        if is_stored(root, name):  # by the process that this one waited for
            return open_stored(root, name)
        archive = fetcher.fetch(root / "downloads", progress)
        stored = import_images(archive, name, root=root, progress=progress)
        if archive.resolve().parent == (root / "downloads").resolve():
            archive.unlink()  # the store has all of it
        return stored


def _way_out(record: Dataset, root: Path) -> str:
    if not record.file_names:
        return "name a copy on disk with `copy`"
    files = ", ".join(record.file_names)
    return f"put one of {files} into {root} and run `tembed data get {record.name}` again, or name a copy with `copy`"


def _generate(record: Dataset, root: Path, progress: Progress) -> Stored:
    assert record.generate is not None
    progress.say(f"generating {record.name}")
    made = record.generate()
    if record.classes and made.classes != record.classes:
        raise TembedError(
            f"the generator of {record.name!r} made the classes {', '.join(made.classes)}, but the record says "
            f"{', '.join(record.classes)}: change one of them"
        )
    images, labels = made.pixels(), made.labels.long().numpy()
    labels_are_known = set(labels.tolist()) <= set(range(len(made.classes)))
    if images.dtype != np.uint8 or images.shape[3:] != (3,) or not labels_are_known:
        raise TembedError(
            f"the generator of {record.name!r} made images of {images.dtype} {tuple(images.shape)} with labels up "
            f"to {labels.max(initial=0)}: it must make uint8 (N, H, W, 3) with labels below {len(made.classes)}"
        )
    reading = Reading("generated", made.classes, iter([Chunk(images, labels, np.zeros(len(labels), np.uint8))]))
    part_map = None if made.part_map is None else made.part_map.numpy()
    return store(root, record.name, reading, {"generator": record.generate.__module__}, part_map, made.parts)
