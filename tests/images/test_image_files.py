"""Decoded images look the way a person expects."""

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from tembed.images import image_files as images
from tembed.images.image_files import BrokenImageError, decode, decode_batch

RGB = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
GREY = RGB[:, :, 0]


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_rgb_is_kept_exactly(kind: str) -> None:
    assert (decode(encoded(Image.fromarray(RGB), kind)) == RGB).all()


def test_lossless_webp_is_kept_exactly() -> None:
    assert (decode(encoded(Image.fromarray(RGB), "WEBP", lossless=True)) == RGB).all()


def test_greyscale_becomes_grey() -> None:
    assert (decode(encoded(Image.fromarray(GREY))) == GREY[:, :, None]).all()


def test_black_and_white_becomes_0_and_255() -> None:
    image = Image.fromarray(GREY).point(lambda value: 255 * (value > 127)).convert("1")
    assert (decode(encoded(image))[:, :, 1] == 255 * (GREY > 127)).all()


def test_a_palette_is_looked_up() -> None:
    image = Image.fromarray(RGB).quantize(16)
    assert (decode(encoded(image)) == np.asarray(image.convert("RGB"))).all()


def test_an_animation_is_its_first_frame() -> None:
    frames = [Image.new("P", (6, 6), colour) for colour in (1, 2, 3)]
    for frame in frames:
        frame.putpalette([0, 0, 0, 250, 0, 0, 0, 250, 0, 0, 0, 250])
    seen = decode(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert (seen == (250, 0, 0)).all()


def test_transparent_pixels_become_white() -> None:
    alpha = np.zeros((6, 6), np.uint8)
    alpha[:3] = 255
    seen = decode(encoded(Image.fromarray(np.dstack([RGB, alpha]))))
    assert (seen[:3] == RGB[:3]).all()
    assert (seen[3:] == 255).all()


def test_half_transparent_grey_is_mixed_with_white() -> None:
    image = Image.merge("LA", [Image.new("L", (6, 6), 100), Image.new("L", (6, 6), 128)])
    assert np.abs(decode(encoded(image)).astype(int) - (100 * 128 + 255 * 127) // 255).max() <= 1


def test_a_transparent_palette_colour_becomes_white() -> None:
    image = Image.new("P", (6, 6), 1)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((0, 0), 0)
    seen = decode(encoded(image, transparency=0))
    assert seen[0, 0].tolist() == [255, 255, 255]
    assert seen[1, 1].tolist() == [200, 100, 50]


def test_cmyk_is_converted() -> None:
    seen = decode(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100))
    assert np.abs(seen.astype(int) - [255, 0, 0]).max() < 12


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_to_eight(kind: str) -> None:
    values = np.array([[0, 257, 32768, 65535]] * 4, np.uint16)
    assert decode(encoded(Image.fromarray(values), kind))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_floating_point_images_are_refused_with_a_way_out() -> None:
    with pytest.raises(BrokenImageError, match="no known range; save it with 8 or 16 bits"):
        decode(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"))


@pytest.mark.parametrize("mark", range(1, 9))
def test_the_rotation_mark_of_the_camera_is_applied(mark: int) -> None:
    """A picture stored with any mark is decoded upright."""
    stored = {
        1: RGB,
        2: RGB[:, ::-1],
        3: RGB[::-1, ::-1],
        4: RGB[::-1],
        5: RGB.transpose(1, 0, 2),
        6: np.rot90(RGB, 1),
        7: np.rot90(RGB.transpose(1, 0, 2), 2),
        8: np.rot90(RGB, -1),
    }[mark]
    exif = Image.Exif()
    exif[0x0112] = mark
    seen = decode(encoded(Image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif))
    assert (seen == RGB).all()


def test_damaged_exif_leaves_the_picture_unturned() -> None:
    data = encoded(Image.fromarray(RGB), "WEBP", lossless=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\0")
    assert (decode_batch([data], None)[0] == RGB).all()


def test_size_resizes_the_shorter_side_and_keeps_the_middle() -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (decode(encoded(Image.fromarray(wide)), size=10) == 200).all()
    assert decode(encoded(Image.fromarray(wide)), size=20).shape == (20, 20, 3)


def test_an_image_over_the_pixel_cap_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 35)
    with pytest.raises(BrokenImageError, match="6x6 pixels exceed the cap of 35"):
        decode(encoded(Image.fromarray(RGB)))


def test_a_decompression_bomb_is_not_decoded() -> None:
    """A PNG of a few kilobytes that claims 900 million pixels."""
    bomb = bytearray(encoded(Image.new("1", (8, 8))))
    bomb[16:24] = (30_000).to_bytes(4, "big") * 2
    bomb[29:33] = zlib.crc32(bytes(bomb[12:29])).to_bytes(4, "big")
    (reason,) = decode_batch([bytes(bomb)], None)
    assert isinstance(reason, str)
    assert "exceeds the cap" in reason


def slow_images() -> dict[str, bytes]:
    """Small files that a decoder works on for long: minutes for each megabyte."""
    jpeg = encoded(Image.fromarray(np.tile(RGB, (9, 9, 1))), "JPEG", progressive=True)
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    return {
        "more than 100 scans": jpeg[:-2] + 100 * scan + jpeg[-2:],
        "padded": jpeg[:2] + b"\xff" * 5000 + jpeg[2:],
        "more than 100000 chunks": encoded(Image.fromarray(RGB))[:33] + 100_000 * b"\0\0\0\0teSt\x5d\x7d\x1c\x2a",
        "header has more than": b"P6" + b" " * (1 << 16) + b"1 1 255\n123",
        "header has more than 65536": b"P5\n#" + b"x" * (1 << 16) + b"\n1 1 255\n1",
        "more than 1000 comments": b"P3\n6 6\n255\n" + b"#\n" * 1001 + b"1 " * 108,
    }


@pytest.mark.parametrize("reason", slow_images())
def test_an_image_that_takes_long_for_its_size_is_not_decoded(reason: str) -> None:
    (found,) = decode_batch([slow_images()[reason]], None)
    assert isinstance(found, str)
    assert reason in found


def test_a_jpeg_may_have_some_padding() -> None:
    """Bytes of 255 in front of a marker, whose own first byte is another one."""
    jpeg = encoded(Image.fromarray(RGB), "JPEG")
    assert (decode(jpeg[:2] + b"\xff" * 4094 + jpeg[2:]) == decode(jpeg)).all()
    with pytest.raises(BrokenImageError, match="padded"):
        decode(jpeg[:2] + b"\xff" * 4095 + jpeg[2:])


@pytest.mark.parametrize("start", [b"P4 800 800\n", b"P5 800 100 255\n", b"P6 800 100 255\n"])
def test_a_large_pnm_of_one_colour_is_decoded(start: bytes) -> None:
    """Its pixels are the code of a space, which is no part of the header."""
    (found,) = decode_batch([start + b" " * 240_000], None)
    assert not isinstance(found, str)


def test_what_follows_the_end_of_a_jpeg_is_ignored() -> None:
    """Phones append a film, in which any bytes occur."""
    jpeg = encoded(Image.fromarray(np.tile(RGB, (9, 9, 1))), "JPEG", progressive=True)
    film = b"\0\2" + b"\xff\xda\0\2" * 1000 + b"\xff" * 10_000
    assert (decode(jpeg + film) == decode(jpeg)).all()


def test_a_truncated_image_is_broken_not_half_grey() -> None:
    data = encoded(Image.fromarray(np.tile(RGB, (9, 9, 1))), "JPEG")
    with pytest.raises(BrokenImageError):
        decode(data[: len(data) // 2])
