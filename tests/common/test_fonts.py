"""Names in other scripts are drawn with a font that has them, or as codes, and never as boxes or with warnings."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from tembed.common import fonts
from tembed.lab.analysis.figures import figure, figure_png, literal

SHIPPED = Path(font_manager.findfont("cmr10"))  # has no accents


@pytest.fixture
def caches() -> Iterator[None]:
    made = (fonts._manager, fonts._plain_path, fonts._system_paths, fonts.path_of)
    for each in made:
        each.cache_clear()
    yield
    for each in made:
        each.cache_clear()


def drawn(text: str) -> np.ndarray:
    image = Image.new("L", (400, 40))
    fonts.draw_text(ImageDraw.Draw(image), (2, 2), text, 255, 20)
    return np.asarray(image)


def test_accents_are_drawn_as_dejavu_draws_them() -> None:
    expected = Image.new("L", (400, 40))
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 20)
    ImageDraw.Draw(expected).text((2, 2), "Würstchen é Ж", 255, font)
    np.testing.assert_array_equal(drawn("Würstchen é Ж"), np.asarray(expected))
    assert not np.array_equal(drawn("é"), drawn("ü"))


@pytest.mark.parametrize("anchor", ["la", "lm", "ls", "ma", "mm"])
def test_a_text_begins_or_has_its_middle_where_it_is_anchored(anchor: str) -> None:
    image = Image.new("L", (400, 100))
    fonts.draw_text(ImageDraw.Draw(image), (200, 50), "HHHHHH", 255, 20, anchor)
    rows, columns = (np.flatnonzero(np.asarray(image).any(axis)) for axis in (1, 0))
    left = {"l": columns[0], "m": columns.mean()}[anchor[0]]
    top = {"a": rows[0], "m": rows.mean(), "s": rows[-1]}[anchor[1]]
    assert (left, top) == pytest.approx((200, 50), abs=5)


def test_a_character_without_a_font_is_written_as_its_code() -> None:
    """U+0378 is not assigned, so that no font has it."""
    assert fonts.drawable("a\u0378é\nb") == "a\\u0378é\nb"
    np.testing.assert_array_equal(drawn("\u0378"), drawn("\\u0378"))


def test_characters_that_the_plain_font_lacks_come_from_another(caches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    dejavu = font_manager.findfont("DejaVu Sans")
    monkeypatch.setattr(fonts, "_plain_path", lambda: str(SHIPPED))
    monkeypatch.setattr(fonts, "_system_paths", lambda: ("gone.ttf", dejavu))
    assert fonts.path_of("a") == str(SHIPPED)
    assert fonts.path_of("Ж") == dejavu
    assert fonts.families(["abc"]) == ["DejaVu Sans"]
    widths = [ImageFont.truetype(path, 20).getlength(text) for path, text in ((SHIPPED, "ab"), (dejavu, "Ж"))]
    assert fonts.text_width("abЖ", 20) == pytest.approx(sum(widths))


def test_a_font_that_was_installed_after_matplotlib_made_its_list_is_found(
    caches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new, damaged = tmp_path / "new.ttf", tmp_path / "damaged.ttf"
    new.write_bytes(SHIPPED.read_bytes())
    damaged.write_bytes(b"no font")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(damaged), str(new)])
    monkeypatch.setattr(fonts, "NOT_TEXT", ("Last Resort",))
    assert str(new) in fonts._system_paths()
    assert str(damaged) not in fonts._system_paths()


def test_symbol_fonts_are_not_used_for_text(caches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        SimpleNamespace(name=name, fname=f"{name}.ttf", style=style, weight=weight)
        for name, style, weight in (
            ("Last Resort High-Efficiency", "normal", 400),
            ("cmsy10", "normal", 400),
            ("Slanted", "italic", 400),
            ("Heavy", "normal", 900),
            ("Upright", "normal", 400),
        )
    ]
    manager = SimpleNamespace(fontManager=SimpleNamespace(ttflist=entries), findSystemFonts=list)
    monkeypatch.setattr(fonts, "_manager", lambda: manager)
    assert fonts._system_paths() == ("Upright.ttf", "Heavy.ttf", "Slanted.ttf")


def test_without_matplotlib_pillows_font_draws_codes(caches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_manager", lambda: None)
    assert fonts.drawable("é") == "\\xe9"
    assert fonts.text_width("é", 14) == ImageFont.load_default(14).getlength("\\xe9")


def test_a_long_name_ends_in_an_ellipsis() -> None:
    short = fonts.shortened("Tibetan mastiff", 60, 14)
    assert short.endswith("…")
    assert fonts.text_width(short, 14) <= 60 < fonts.text_width("Tibetan mastiff", 14)
    assert fonts.shortened("cat", 60, 14) == "cat"


def test_a_font_without_a_bold_face_gives_no_message(caplog: pytest.LogCaptureFixture) -> None:
    fonts.set_fonts(figure(1, 1))
    for family in ("cmr10", "cmtt10"):  # others than those that another test may have looked up
        font_manager.findfont(font_manager.FontProperties(family=family, weight="bold"))
    assert not caplog.records


def test_a_figure_with_any_script_gives_no_warning() -> None:
    made = figure(2, 2)
    axis = made.add_subplot()
    axis.set_yticks([0, 1], literal(["犬\U000e0123", "Würstchen"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure_png(made)
