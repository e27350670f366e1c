"""Pictures that are not in a dataset: files, folders and patterns of files, Pillow images and arrays."""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from tembed.common.arrays import Fit, UInt8
from tembed.common.errors import TembedError
from tembed.common.files import read_file
from tembed.images.image_files import (
    ENDINGS,
    HEIF_ENDINGS,
    BrokenImageError,
    decode_batch,
    fitted,
    reads_heif,
    to_pixels,
)

MAX_FILE = 1 << 29  # bytes; more than the largest image takes
Given = str | Path | Image.Image | np.ndarray


class Picture(NamedTuple):
    """``photo``: the whole picture, ``(H, W, 3)``. ``pixels``: what a network gets, ``(size, size, 3)``.

    ``box``: left, top, right and bottom of that part of the photograph, in its pixels; it is larger than a photograph
    that was padded.
    """

    name: str
    photo: UInt8
    pixels: UInt8
    box: tuple[float, float, float, float]


def all_given(images: Given | Iterable[Given]) -> list[Given]:
    """One picture or several, with every folder and pattern replaced by its files."""
    several = [images] if isinstance(images, str | Path | Image.Image | np.ndarray) else images
    found: list[Given] = []
    for one in several:
        found += find_files([one]) if isinstance(one, str | Path) else [one]
    return found


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files themselves, all images in or below folders, and the matches of patterns such as ``*.jpg``."""
    found: list[Path] = []
    endings = ENDINGS | HEIF_ENDINGS if reads_heif() else ENDINGS
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in endings and each.is_file())
            inside = [each for each in inside if not each.name.startswith(".")]
            if not inside:
                raise TembedError(f"{path} has no images: expected {', '.join(sorted(endings))} files")
            found += inside
        elif not path.exists() and glob.has_magic(str(path)):
            matches = sorted(glob.glob(str(path), recursive=True))
            if not matches:
                raise TembedError(f"no file matches {path}: check the pattern")
            found += find_files(matches)
        else:
            found.append(path)
    return found


def short_names(paths: Sequence[str | Path]) -> list[str]:
    """The name of each file, with as many of its folders as tell all files apart."""
    parts = [Path(path).parts for path in paths]
    depth = 1
    while len({each[-depth:] for each in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(each[-depth:]) for each in parts]


def read_bytes(path: Path) -> bytes | str:
    """The content of a file, or the reason why it cannot be read."""
    try:
        return read_file(path, MAX_FILE)
    except OSError as error:
        return f"it cannot be read ({error.strerror}): check its name"


def read_picture(given: Given, size: int, fit: Fit = "crop", name: str = "image") -> Picture:
    """One picture at a network's input size; ``name`` is for those that have no file name.

    A picture that cannot be used raises a `TembedError` that names it.
    """
    if isinstance(given, str | Path):
        path = Path(given)
        (photo,) = decode_batch([read_bytes(path)], None)
        if isinstance(photo, str):
            raise TembedError(f"{path}: {photo}")
        name = path.name
    elif isinstance(given, Image.Image):
        name = Path(getattr(given, "filename", "") or name).name
        try:
            photo = to_pixels(given)
        except BrokenImageError as error:
            raise TembedError(f"{name}: {error}") from None
    else:
        photo = _checked(given, name)
    height, width = photo.shape[:2]
    if fit == "stretch":
        box = (0.0, 0.0, float(width), float(height))
    else:
        side = max(height, width) if fit == "pad" else min(height, width)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    return Picture(name, photo, np.asarray(fitted(Image.fromarray(photo), size, fit)), box)


def _checked(array: np.ndarray, name: str) -> UInt8:
    """An array as RGB pixels ``(H, W, 3)``."""
    if not isinstance(array, np.ndarray):
        raise TembedError(f"{name} is a {type(array).__name__}: give a path, a Pillow image or an array (H, W, 3)")
    if array.dtype != np.uint8:
        raise TembedError(f"{name} is an array of {array.dtype}: give uint8 pixels from 0 to 255")
    if array.ndim == 2:
        array = np.repeat(array[..., None], 3, axis=2)
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise TembedError(f"{name} is an array of shape {array.shape}: give (H, W, 3), or (H, W) for greyscale")
    return np.ascontiguousarray(array)
