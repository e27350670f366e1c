"""One encoded image to RGB pixels, as a person would expect to see it.

Greyscale becomes grey RGB; transparency is laid on white; palettes, CMYK and YCbCr are converted; 16-bit
values are scaled to 8; the camera's rotation mark (EXIF) is obeyed; of an animation the first frame counts.
This module runs in the decoding processes too, so it imports nothing heavy.
"""

import io

import numpy as np
from PIL import Image, ImageOps

from tembed.data.reading import UInt8
from tembed.data.reporting import one_line

ENDINGS = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 1 << 26  # 67 million; an RGB image of 200 MB
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


class BrokenImageError(Exception):
    """Why these bytes are not an image that we take; the caller knows the file's name."""


def decode(data: bytes, size: int | None = None) -> UInt8:
    """RGB pixels ``(H, W, 3)``. With ``size``, the shorter side is resized to it and the middle kept."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BrokenImageError(
                    f"{image.width}x{image.height} pixels exceed the cap of {MAX_PIXELS} pixels"
                )
            upright = _upright(image, _to_rgb(image))
            if size is not None and upright.size != (size, size):
                upright = ImageOps.fit(upright, (size, size), Image.Resampling.LANCZOS)
            return np.asarray(upright)
    except BrokenImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BrokenImageError(f"exceeds the cap of {MAX_PIXELS} pixels") from error
    except Exception as error:  # Pillow's decoders raise nearly every type on damaged bytes
        reason = (
            "not an image in a known format" if isinstance(error, Image.UnidentifiedImageError) else error
        )
        raise BrokenImageError(one_line(str(reason)) or type(error).__name__) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "F":
        raise BrokenImageError("floating-point pixels have no known range; save it with 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.int64)
        if grey.min() < 0 or grey.max() > 65535:
            raise BrokenImageError("32-bit pixels have no known range; save it with 8 or 16 bits")
        return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _upright(image: Image.Image, rgb: Image.Image) -> Image.Image:
    try:
        mark = image.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF says nothing about the pixels: every viewer shows them unturned
        return rgb
    turn = TURNS.get(mark) if isinstance(mark, int) else None
    return rgb if turn is None else rgb.transpose(turn)
