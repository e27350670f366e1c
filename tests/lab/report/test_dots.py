"""A dot plot has a row for the value and for each control, and tells beaten controls from others."""

from xml.etree import ElementTree

from tembed.lab.claims.claim import Claim, Control, Measure
from tembed.lab.report.charts import BASELINE, BLOCK
from tembed.lab.report.dots import dot_plot

CONTROLS = (
    Control("weak $x$", Measure(0.1, 0.0, 0.2), Measure(0.4), 0.001, 0.999),
    Control("a control with a name that is too long for a line", Measure(0.7, 0.6, 0.8), Measure(-0.2), 0.99, 0.01),
    Control("without an interval", Measure(0.4), Measure(0.1), 0.2, 0.8),
)


def test_the_value_comes_first_and_then_the_strongest_control() -> None:
    svg = dot_plot(Claim("purity", "p", "d", Measure(0.5, 0.45, 0.55), CONTROLS))
    texts = [
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    ]
    names = [text for text in texts if not text.replace(".", "").isdigit()]
    joined = " | ".join(names)
    order = [joined.index(start) for start in ("measured", "a control with", "without an interval", "weak $x$")]
    assert order == sorted(order)
    assert "claimed: more than every control" in names


def test_controls_that_are_only_shown_come_last_and_claim_nothing() -> None:
    svg = dot_plot(Claim("purity", "p", "d", Measure(0.5), CONTROLS[:1], shown=CONTROLS[1:2]))
    assert svg.index("weak") < svg.index("a control with")
    assert "claimed" not in dot_plot(Claim("purity", "p", "d", Measure(0.5), shown=CONTROLS))


def test_controls_that_are_not_beaten_are_hollow() -> None:
    beaten = dot_plot(Claim("purity", "p", "d", Measure(0.5), CONTROLS[:1]))
    missed = dot_plot(Claim("purity", "p", "d", Measure(0.5), CONTROLS))

    def hollow(svg: str) -> int:
        return sum("fill: #ffffff; stroke: " + BASELINE in line for line in svg.splitlines() if "<use" in line)

    assert BLOCK in beaten
    assert (hollow(beaten), hollow(missed)) == (0, 2)
    assert missed == dot_plot(Claim("purity", "p", "d", Measure(0.5), CONTROLS)), "the same claim gives the same bytes"
