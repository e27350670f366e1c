"""Fonts for names in any script, for Pillow and for matplotlib.

Text is drawn in DejaVu Sans, which comes with matplotlib and has accented Latin, Greek, Cyrillic and more. Characters
that it lacks come from the fonts of the system. A character that no font has is written as its code (``\\u72ac``), so
that two such names stay different. Without matplotlib, Pillow's own font is used, which has only basic Latin.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import groupby
from typing import Any

from PIL import ImageDraw, ImageFont

from tembed.common.errors import TembedError
from tembed.common.extras import needs

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
PLAIN = "DejaVu Sans"
"""The family of all text."""
NOT_TEXT = ("Last Resort", "STIX", "cm")
"""Families of matplotlib whose glyphs are mathematical symbols or placeholders; "cm" is Computer Modern."""


@cache
def _manager() -> Any:
    """matplotlib's module of fonts, or None if matplotlib is not installed."""
    try:
        return needs("matplotlib.font_manager")
    except TembedError:
        return None


@cache
def _plain_path() -> str:
    return str(_manager().findfont(PLAIN))


@cache
def _system_paths() -> tuple[str, ...]:
    """All other fonts, upright ones of normal weight first."""
    _add_new_fonts()
    entries = [entry for entry in _manager().fontManager.ttflist if not entry.name.startswith(NOT_TEXT)]
    entries.sort(key=lambda entry: (entry.style != "normal", str(entry.weight) not in ("400", "normal")))
    return tuple(dict.fromkeys(entry.fname for entry in entries))


def _add_new_fonts() -> None:
    """Tell matplotlib of the fonts that were installed since it made its list, which it keeps on disk."""
    manager = _manager()
    known = {entry.fname for entry in manager.fontManager.ttflist}
    for path in sorted(set(manager.findSystemFonts()) - known):
        with suppress(OSError, RuntimeError):  # damaged, or a format without outlines
            manager.fontManager.addfont(path)


@cache
def _face(path: str) -> Any:
    return needs("matplotlib.ft2font").FT2Font(path)


@cache
def path_of(character: str) -> str | None:
    """The font file for a character; None if no font has it."""
    for path in (_plain_path(), *_system_paths()):
        try:
            if _face(path).get_char_index(ord(character)):
                return path
        except (OSError, RuntimeError):  # a font of the system may be damaged or removed
            continue
    return None


def drawable(text: str) -> str:
    """The text with its code instead of each character that no font has. Line breaks stay."""
    if text.isascii():
        return text
    if _manager() is None:
        return _codes(text)
    return "".join(each if each.isspace() or path_of(each) else _codes(each) for each in text)


def _codes(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


# --- Pillow


@cache
def _pillow(path: str | None, size: float) -> Font:
    return ImageFont.load_default(size) if path is None else ImageFont.truetype(path, size)


def _runs(text: str, size: float) -> list[tuple[str, Font]]:
    """The pieces of a text, each with the font that has its characters."""
    text = " ".join(drawable(text).split("\n"))
    if _manager() is None:
        return [(text, _pillow(None, size))]
    pieces = groupby(text, key=lambda each: path_of(each) or _plain_path())
    return [("".join(piece), _pillow(path, size)) for path, piece in pieces]


def text_width(text: str, size: float) -> float:
    """The width of a line of text in pixels."""
    return sum(font.getlength(piece) for piece, font in _runs(text, size))


def draw_text(
    draw: ImageDraw.ImageDraw, at: tuple[float, float], text: str, fill: Any, size: float, anchor: str = "la"
) -> None:
    """Draw a line of text at its left ("l") or middle ("m"), and top ("a"), middle ("m") or baseline ("s")."""
    x, y = at
    if anchor[0] == "m":
        x -= text_width(text, size) / 2
    for piece, font in _runs(text, size):
        draw.text((x, y), piece, fill, font, anchor=f"l{anchor[1]}")
        x += font.getlength(piece)


def shortened(text: str, width: float, size: float, *, keep_end: bool = False) -> str:
    """The text, cut at its end if it is wider than ``width`` pixels, with an ellipsis there.

    ``keep_end``: cut it at its start instead, as for the path of a file.
    """
    shown = text
    while text_width(shown, size) > width and len(shown) > 1:
        shown = "…" + shown.removeprefix("…")[1:] if keep_end else shown.removesuffix("…")[:-1] + "…"
    return shown


# --- matplotlib


def families(texts: Iterable[str]) -> list[str]:
    """The font families that have all characters of these texts, `PLAIN` first."""
    names = [PLAIN]
    for character in sorted(set("".join(texts))):
        path = None if character.isascii() else path_of(character)
        if path is not None and path != _plain_path():
            names.append(_face(path).family_name)
    return list(dict.fromkeys(names))


def _is_not_about_weight(record: logging.LogRecord) -> bool:
    """False for matplotlib's note that a font of the system has no bold face: the plain one will do."""
    return "font weight" not in record.msg


def set_fonts(figure: Any) -> None:
    """Give all text of a matplotlib figure the fonts that have its characters."""
    logging.getLogger("matplotlib.font_manager").addFilter(_is_not_about_weight)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_ticklabels()  # fills in the texts of fixed tick labels
    found = figure.findobj(needs("matplotlib.text").Text)
    names = families(text.get_text() for text in found)
    if len(names) > 1:
        for text in found:
            text.set_fontfamily(names)
