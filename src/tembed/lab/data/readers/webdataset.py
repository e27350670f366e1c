"""WebDataset: files of one sample share a key, the part of their name up to its first dot.

A sample is ``key.jpg`` (or another image) with its class in ``key.cls`` or ``key.json``. Classes are numbers, which a
``classnames.txt`` may name line by line, or texts. The names of the shards, or of their folders, may say train, val or
test.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from tembed.common.errors import TembedError, one_line
from tembed.common.progress import Progress
from tembed.images.image_files import ENDINGS
from tembed.lab.data.readers.archives import Archive, read_member, where
from tembed.lab.data.readers.decoding import Decoding, Item
from tembed.lab.data.readers.folders import SUBSET_FOLDERS
from tembed.lab.data.readers.reading import Options, Reading
from tembed.lab.data.readers.shards import CLASS_NAMES, Shards
from tembed.lab.data.subsets import CODES, UNKNOWN

FIELDS = ("cls", "label", "class")
"""The fields of a ``.json`` that may hold the class, in this order."""
MAX_LABEL = 1 << 20  # bytes


class Sample(NamedTuple):
    """The name of an image, and of the file with its class."""

    image: str
    label: str


def find_samples(archive: Archive) -> tuple[list[Sample], list[str]] | None:
    """The samples of an archive and its images without a class; None if it is no WebDataset.

    A ``.json`` beside an image holds its class only if no folder does: in a tar of many, or at the top.
    """
    names = set(archive.names)
    samples, alone = [], []
    for name in archive.names:
        folder, slash, file = name.rpartition("/")
        key, _, ending = file.partition(".")
        if f".{ending.lower()}" not in ENDINGS:
            continue
        endings = ("cls", "json") if isinstance(archive, Shards) or not slash else ("cls",)
        found = next((each for each in (f"{folder}{slash}{key}.{end}" for end in endings) if each in names), None)
        if found is None:
            alone.append(name)
        else:
            samples.append(Sample(name, found))
    return (samples, alone) if samples else None


def read_samples(
    archive: Archive, samples: list[Sample], alone: list[str], options: Options, progress: Progress
) -> Reading:
    """The images of the samples, in the order of their names."""
    if alone and not options.skip_broken:
        raise TembedError(
            f"{where(archive, alone[0])} has no .cls or .json beside it ({len(alone)} such images): add it, or leave "
            "out these images with `skip_broken`"
        )
    left_out = [f"{name}: it has no .cls or .json beside it" for name in alone]
    texts = []
    for done, sample in enumerate(samples, 1):
        texts.append(_label(archive, sample.label))
        if done % 1000 == 0:
            progress.update("reading classes", done, len(samples))
    progress.drop("reading classes")
    classes, numbers = _classes(archive, texts)
    subsets = _subsets(sample.image for sample in samples)
    items = [Item(sample.image, *each) for sample, *each in zip(samples, numbers, subsets, strict=True)]
    used = {name for sample in samples for name in sample}
    notes = list(archive.notes)
    others = [name for name in archive.names if name not in used and not name.endswith(CLASS_NAMES)]
    if others := sorted(set(others) - set(alone)):
        notes.append(f"skipped {len(others):,} files that are neither an image nor its class, such as {others[0]}")
    source = Decoding(archive, items, options, left_out, notes, progress)
    return Reading("WebDataset", classes, source.chunks(), left_out, notes, source)


def _label(archive: Archive, name: str) -> str:
    """The class of a sample, as text."""
    try:
        text = read_member(archive, name, MAX_LABEL).decode("utf-8").strip()
        if name.endswith(".json"):
            values = json.loads(text)
            found = next((values[field] for field in FIELDS if field in values), None)
            text = str(found) if isinstance(found, int | str) and not isinstance(found, bool) else ""
    except (ValueError, TypeError, RecursionError) as error:
        raise TembedError(f"{where(archive, name)} cannot be read ({one_line(str(error))})") from None
    if not text or one_line(text) != text:
        raise TembedError(
            f"{where(archive, name)} does not name a class: a .cls must hold a number or a text, and a .json one of "
            f"the fields {', '.join(FIELDS)}"
        )
    return text


def _classes(archive: Archive, texts: list[str]) -> tuple[tuple[str, ...], list[int]]:
    """The names of the classes that occur, and the class of each sample."""
    if not all(re.fullmatch(r"\d{1,6}", text) for text in texts):
        classes = sorted(set(texts))
        number = {name: index for index, name in enumerate(classes)}
        return tuple(classes), [number[text] for text in texts]
    codes = [int(text) for text in texts]
    present = sorted(set(codes))
    titles = _class_names(archive)
    if titles is None:
        titles = [f"{code:0{len(str(present[-1]))}}" for code in range(present[-1] + 1)]
    elif present[-1] >= len(titles):
        raise TembedError(
            f"{archive.path}: an image is of class {present[-1]}, but {CLASS_NAMES} has {len(titles)} lines (the first "
            "is class 0): complete or remove it"
        )
    place = {code: index for index, code in enumerate(present)}
    repeated = len(set(titles)) < len(titles)
    names = [f"{titles[code]} ({code})" if repeated else titles[code] for code in present]
    return tuple(names), [place[code] for code in codes]


def _class_names(archive: Archive) -> list[str] | None:
    """The lines of ``classnames.txt``, if there is one."""
    found = [name for name in archive.names if name.rpartition("/")[2] == CLASS_NAMES]
    if not found:
        return None
    try:
        lines = read_member(archive, found[0], MAX_LABEL).decode("utf-8-sig").splitlines()
    except UnicodeError as error:
        raise TembedError(f"{where(archive, found[0])} cannot be read ({error})") from None
    return [one_line(line).strip() or str(number) for number, line in enumerate(lines)]


def _subsets(images: Iterable[str]) -> list[int]:
    """The code of each image's subset, if the names of all shards say one."""
    codes = []
    for image in images:
        words = re.split(r"[^a-z]+", image.lower().rpartition("/")[0])
        found = {SUBSET_FOLDERS[word] for word in words if word in SUBSET_FOLDERS}
        codes.append(CODES[found.pop()] if len(found) == 1 else UNKNOWN)
    return codes if UNKNOWN not in codes else [UNKNOWN] * len(codes)
