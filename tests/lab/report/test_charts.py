"""Charts are deterministic SVG text that needs nothing else and stays inside its frame."""

import re
import xml.etree.ElementTree as ET

import pytest

from tembed.common.palette import BASELINE, BLOCK
from tembed.lab.report.charts import Series, chart

POINTS = ((1.0, 80.0, 0.5), (2.0, 85.0, 0.0), (4.0, 86.5, 0.25))
SVG = "{http://www.w3.org/2000/svg}"


def two_series() -> list[Series]:
    return [Series("RN26", POINTS, BASELINE), Series("with <block>", POINTS[:2], BLOCK, measured=False)]


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_same_series_give_the_same_bytes() -> None:
    assert chart(two_series(), "epoch", "accuracy") == chart(two_series(), "epoch", "accuracy")


def test_text_stays_text_and_the_colours_are_those_of_the_series() -> None:
    svg = chart(two_series(), "epoch", "accuracy, %")
    assert {"epoch", "accuracy, %", "RN26", "with <block>"} <= set(texts(svg))
    assert BASELINE in svg
    assert BLOCK in svg
    assert ET.fromstring(svg).findtext(f"{SVG}title") == "accuracy, % over epoch"


def test_a_name_that_no_font_here_has_stays_text_and_gives_no_warning() -> None:
    """U+0378 is not assigned, so that no font has it. The suite turns warnings into errors."""
    assert "a\u0378" in texts(chart([Series("a\u0378", POINTS, BLOCK)], "epoch", "accuracy"))


def test_a_chart_refers_to_nothing_outside() -> None:
    svg = chart(two_series(), "epoch", "accuracy")
    assert svg.startswith("<svg")
    assert set(re.findall(r"[a-z]+://[^\"]*", svg)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(reference.startswith("#") for reference in re.findall(r'href="([^"]*)"', svg))


@pytest.mark.parametrize("name", ["short", "a network with a very long name, lambda 0.25, softmax on bn True (n = 3)"])
def test_every_text_is_large_enough_for_a_phone_and_inside_the_chart(name: str) -> None:
    """A letter of DejaVu Sans is about 0.62 of the font size wide; a phone shows 358 of its 390 pixels."""
    svg = chart([Series(f"{name} {i}", POINTS, BLOCK) for i in range(5)], "epoch", "accuracy")
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter(f"{SVG}text"):
        size = float(re.search(r"font-size: ([\d.]+)px", element.attrib["style"])[1])  # type: ignore[index]
        assert size * 358 / width >= 9
        if "rotate(-90" in element.attrib.get("transform", ""):
            continue
        x, y = (float(element.attrib[axis]) for axis in "xy") if "x" in element.attrib else moved(element)
        length = 0.62 * size * len("".join(element.itertext()))
        start = x - length / 2 if "middle" in element.attrib["style"] else x
        assert start >= 0 or "end" in element.attrib["style"]
        assert start + length <= width or "end" in element.attrib["style"]
        assert 0 <= y <= height


def moved(element: ET.Element) -> tuple[float, float]:
    x, y = re.search(r"translate\(([\d.]+) ([\d.]+)\)", element.attrib["transform"]).groups()  # type: ignore[union-attr]
    return float(x), float(y)


def test_names_replace_numbers_on_the_x_axis() -> None:
    labels = texts(chart(two_series(), "depth", "accuracy", {1.0: "one (RN26)", 2.0: "two (RN38)"}))
    assert {"one (RN26)", "two (RN38)"} <= set(labels)


def test_a_name_with_dollar_signs_is_no_formula() -> None:
    svg = chart([Series(r"$\frac$", ((0.0, 1.0, 0.0),), BLOCK)], r"$\sum", r"$\frac$")
    assert svg.count(r"$\frac$") >= 2
