"""The figures of the analysis stay readable with long class names and with many classes."""

from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib import font_manager
from support.features import made_features
from support.texts import unreadable

from tembed.common import fonts
from tembed.common.fonts import text_width
from tembed.lab.analysis.colours import class_colours
from tembed.lab.analysis.effective_fields import PatchView
from tembed.lab.analysis.figures import figure_png, geometry_figure, legend_figure, legend_points, within, words_figure
from tembed.lab.analysis.words import find_words

LONG = (
    "black-footed ferret of Wyoming",
    "チベタン・マスティフの子犬たち",
    "W" * 60,
    "three_toed sloth_$cost_of_living",
)

VIEW = PatchView(2, 0, "16 px shown; 55% of the score comes from here, 51% from the outlined 12 px")


def names(count: int) -> tuple[str, ...]:
    return tuple(f"{k} {LONG[k % len(LONG)]}" for k in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 6, 30])
def test_long_names_cover_no_text_of_words_and_legend(classes: int) -> None:
    features = made_features(np.arange(40) % classes, (4, 4), classes)
    images = np.zeros((40, 16, 16, 3), np.uint8)
    colours = class_colours(classes)
    words = find_words(features, 16, 0)
    assert unreadable(words_figure(features, images, words, np.arange(16), names(classes), colours, VIEW)) == []
    assert unreadable(legend_figure(features, images, legend_points(features), names(classes), colours, VIEW)) == []


@pytest.fixture
def stix(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """STIX, which comes with matplotlib, as the only font of the system."""
    path = str(font_manager.findfont("STIXGeneral"))
    monkeypatch.setattr(fonts, "_system_paths", lambda: (path,))
    fonts.path_of.cache_clear()
    yield path
    fonts.path_of.cache_clear()


def test_a_character_from_a_font_of_the_system_gives_no_warning(stix: str) -> None:
    assert fonts.path_of("\u1d81") == stix  # DejaVu Sans does not have it
    features = made_features(np.arange(8) % 2, (4, 4), 2)
    images, classes, colours = np.zeros((8, 16, 16, 3), np.uint8), ("a\u1d81", "b\u1d81"), class_colours(2)
    words = find_words(features, 4, 0)
    points = np.random.default_rng(0).random((20, 2), np.float32)
    for made in (
        legend_figure(features, images, legend_points(features), classes, colours, VIEW),
        words_figure(features, images, words, np.arange(4), classes, colours, VIEW),
        geometry_figure([("a\u1d81", points, np.arange(20) % 2)], classes, colours, None),
    ):
        figure_png(made)


@pytest.mark.parametrize("classes", [2, 6, 30])
def test_long_names_cover_no_text_of_the_maps(classes: int) -> None:
    points = np.random.default_rng(0).random((200, 2), np.float32)
    panels = [(f"{where} of the run {LONG[2]}", points, np.arange(200) % classes) for where in ("input", "output")]
    groups = (list(LONG[:2]), np.arange(classes) % 2)
    assert unreadable(geometry_figure(panels, names(classes), class_colours(classes), groups)) == []


def test_a_text_is_shortened_to_its_width_in_inches() -> None:
    assert within("cat", 1, 10) == "cat"
    assert within("a\n b", 1, 10) == "a b"
    assert within("$5", 1, 10) == r"\$5"
    path = "/home/me/runs/rn26-embed-photos-0"
    for size in (8.0, 16.0):
        start, end = within(path, 1.5, size), within(path, 1.5, size, keep_end=True)
        assert start.endswith("…")
        assert path.startswith(start.removesuffix("…"))
        assert end.startswith("…")
        assert path.endswith(end.removeprefix("…"))
        assert 1.2 * 72 < text_width(start, size) <= 1.5 * 72
        assert 1.2 * 72 < text_width(end, size) <= 1.5 * 72
