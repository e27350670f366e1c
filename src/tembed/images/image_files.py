"""Decodes an image file to RGB pixels.

Greyscale becomes grey RGB; transparent pixels are blended with white; palettes, CMYK and YCbCr are converted; 16-bit
values are scaled to 8; the camera's rotation (EXIF) is applied; only the first frame of an animation is used. The
decoding processes import this module, so it imports nothing heavy.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps

from tembed.common.arrays import Fit, UInt8
from tembed.common.errors import one_line

ENDINGS = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)
HEIF_ENDINGS = frozenset({".heic", ".heif"})  # with the extra ``heic``
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 1 << 26  # 67 million; an RGB image of 200 MB
GREY = (128, 128, 128)  # around a padded image
MAX_SCANS = 100  # of a JPEG; usual ones have up to 20, and a decoder visits every pixel in each
MAX_PADDING = 4096  # bytes in the header of a JPEG, which Pillow reads one by one
MAX_COMMENTS = 1000  # in a PNM of plain text; Pillow copies the text for each
MAX_HEADER = 1 << 16  # bytes of a PNM, which Pillow reads one by one
MAX_CHUNKS = 100_000  # of a PNG; the usual ones have a kilobyte or more each
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # of a JPEG, except those within a scan
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Pixels = UInt8 | str
"""Pixels ``(H, W, 3)``, or the reason why there are none."""
Result = TypeVar("Result")


class BrokenImageError(Exception):
    """The reason why these bytes are not accepted as an image; the caller knows the name of the file."""


class Decoded(NamedTuple):
    """An image in the store's size, and the size it had. ``pixels`` is None if it is not the expected size."""

    pixels: UInt8 | None
    width: int
    height: int


def decode(data: bytes, size: int | None = None, fit: Fit = "crop") -> UInt8:
    """RGB pixels ``(H, W, 3)``. With ``size``, the image becomes a square of that side in the way of ``fit``."""
    pixels = decode_picture(data, size, fit).pixels
    assert pixels is not None, "no size was expected"
    return pixels


def decode_picture(
    data: bytes,
    size: int | None = None,
    fit: Fit = "crop",
    expected: int | None = None,
) -> Decoded:
    """An image and the size it had. One that is not a square of the ``expected`` side is not decoded."""
    try:
        _check_work(data)
        with Image.open(io.BytesIO(data), formats=_formats(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BrokenImageError(f"{image.width}x{image.height} pixels exceed the cap of {MAX_PIXELS} pixels")
            if expected is not None and image.size != (expected, expected):
                return Decoded(None, *image.size)
            upright = _upright(image, _to_rgb(image))
            width, height = upright.size
            return Decoded(np.asarray(upright if size is None else fitted(upright, size, fit)), width, height)
    except (BrokenImageError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BrokenImageError(f"exceeds the cap of {MAX_PIXELS} pixels") from error
    except Exception as error:  # Pillow's decoders raise nearly every type of error on damaged bytes
        reason = "not an image in a known format" if isinstance(error, Image.UnidentifiedImageError) else error
        raise BrokenImageError(one_line(str(reason)) or type(error).__name__) from error


def to_pixels(image: Image.Image) -> UInt8:
    """RGB pixels ``(H, W, 3)`` of an image that Pillow has opened."""
    return np.asarray(_upright(image, _to_rgb(image)))


def header_size(data: bytes) -> tuple[int, int]:
    """Width and height as the file says, without decoding it and before the camera's rotation."""
    try:
        _check_work(data)
        with Image.open(io.BytesIO(data), formats=_formats(data)) as image:
            return image.size
    except (BrokenImageError, MemoryError):
        raise
    except Exception as error:
        raise BrokenImageError(one_line(str(error)) or type(error).__name__) from error


def decode_batch(encoded: Sequence[bytes | str], size: int | None, fit: Fit = "crop") -> list[Pixels]:
    """Decode each image. A string stands for an image that could not be read and is passed on as the reason."""
    return decode_each(encoded, lambda data: decode(data, size, fit))


def decode_each(encoded: Sequence[bytes | str], decode_one: Callable[[bytes], Result]) -> list[Result | str]:
    """What ``decode_one`` makes of each image, or why it cannot be read."""
    results: list[Result | str] = []
    with quiet_pillow():
        for one in encoded:
            try:
                results.append(one if isinstance(one, str) else decode_one(one))
            except BrokenImageError as error:
                results.append(str(error))
    return results


def fitted(image: Image.Image, size: int, fit: Fit) -> Image.Image:
    """A square of side ``size``: the centre of the image, all of it with grey borders, or all of it stretched."""
    if image.size == (size, size):
        return image
    if fit == "stretch":
        return image.resize((size, size), Image.Resampling.LANCZOS)
    if fit == "pad":
        return ImageOps.pad(image, (size, size), Image.Resampling.LANCZOS, GREY)
    return ImageOps.fit(image, (size, size), Image.Resampling.LANCZOS)


def reads_heif() -> bool:
    """Whether the package for HEIC is installed; if so, Pillow learns the format."""
    try:
        import pillow_heif
    except ImportError:
        return False
    if "HEIF" not in Image.OPEN:
        pillow_heif.register_heif_opener()
    return True


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings about odd files, but not the one about a decompression bomb."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _check_work(data: bytes) -> None:
    """Refuse a file that a decoder would work on for much longer than its size suggests."""
    if data[:2] == b"\xff\xd8":
        if data.find(b"\xff" * MAX_PADDING, 0, max(0, data.find(b"\xff\xda"))) >= 0:
            raise BrokenImageError(f"its header is padded with more than {MAX_PADDING} bytes")
        if data.count(b"\xff\xda") > MAX_SCANS and _scans(data) > MAX_SCANS:
            raise BrokenImageError(f"it has more than {MAX_SCANS} scans")
    elif data[:4] == b"\x89PNG":
        if _chunks(data) > MAX_CHUNKS:
            raise BrokenImageError(f"it has more than {MAX_CHUNKS} chunks")
    elif re.match(rb"P[1-6]\s", data):
        words = re.sub(rb"#[^\r\n]*", b"", data[:MAX_HEADER]).split(None, 4)
        if len(data) > MAX_HEADER and len(words) < (3 if data[1:2] in b"14" else 4):  # black and white has no maximum
            raise BrokenImageError(f"its header has more than {MAX_HEADER} bytes")
        if data[1:2] in b"123" and data.count(b"#") > MAX_COMMENTS:
            raise BrokenImageError(f"it has more than {MAX_COMMENTS} comments")


def _chunks(data: bytes) -> int:
    """The number of chunks of a PNG, or one more than the most that are allowed."""
    at, chunks = 8, 0
    while at < len(data) and chunks <= MAX_CHUNKS:
        at += 12 + int.from_bytes(data[at : at + 4], "big")
        chunks += 1
    return chunks


def _scans(data: bytes) -> int:
    """The number of scans of a JPEG, up to its end mark: what follows it is no image."""
    at, scans = 2, 0
    while (found := MARKER.search(data, at)) and found[0] != b"\xff\xd9":
        scans += found[0] == b"\xff\xda"
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2], "big")
    return scans


def _formats(data: bytes) -> tuple[str, ...]:
    """The formats to try; the package for HEIC is imported for its files only."""
    return (*FORMATS, "HEIF") if data[4:8] == b"ftyp" and reads_heif() else FORMATS


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "F":
        raise BrokenImageError("floating-point pixels have no known range; save it with 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        grey = np.asarray(image)
        if grey.min() < 0 or grey.max() > 65535:
            raise BrokenImageError("32-bit pixels have no known range; save it with 8 or 16 bits")
        scaled = (grey.astype(np.uint32) * 255 + 32767) // 65535
        return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _upright(image: Image.Image, rgb: Image.Image) -> Image.Image:
    try:
        mark = image.getexif().get(ORIENTATION)
    except Exception:  # the pixels are intact even if the EXIF is damaged; image viewers show them unrotated
        return rgb
    turn = TURNS.get(mark) if isinstance(mark, int) else None
    return rgb if turn is None else rgb.transpose(turn)
