"""A panel from outside the package: registered with one call, and shown in a real browser."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.chromium import Browser, Tab
from support.page import lone_patch, on_screen, press, text, texts

from tembed.common.errors import TembedError
from tembed.common.plugins import load_plugins
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.page import build_page, panels, register_panel

DOCUMENT = (Path(__file__).parents[3] / "docs" / "extending.md").read_text("utf-8")
EXAMPLE = dict(re.findall(r"```(?:python|js) (my_panel\.\w+)\n(.*?)```", DOCUMENT, flags=re.DOTALL))
OWN = ["filter", "words", "mix", "drop"]
HOSTILE = "</script><img src=x onerror=alert(7)>\u2028'\"`${alert(8)}"
SHOW_DATA = """
tembed.registerPanel("texts", "<b>Texts</b>", class {
  constructor(element, page, data) { element.append(tembed.el("p", { text: data.text, title: data.text })); }
});
"""
FAILING = {
    "syntax": "tembed.registerPanel('syntax', 'Syntax', class {",
    "other-name": "tembed.registerPanel('words', 'Mine', class {});",
    "making": "tembed.registerPanel('making', 'Making', class { constructor() { throw new Error('<i>no</i>'); } });",
    "updating": "tembed.registerPanel('updating', 'U', class { update({ word }) { if (word !== null) nothing(); } });",
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, panels.Panel]:
    """The registered panels; those of a test are forgotten at its end."""
    known = dict(panels._PANELS)
    monkeypatch.setattr(panels, "_PANELS", known)
    return known


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files of docs/extending.md, loaded as ``--plugin my_panel`` loads them."""
    for name, content in EXAMPLE.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    load_plugins(["my_panel"])
    yield
    del sys.modules["my_panel"]


def open_page(chromium: Browser, page: Path, address: str = "") -> Tab:
    tab = chromium.open(page.as_uri() + address, reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    return tab


@pytest.mark.browser
def test_the_panel_of_the_docs_follows_the_selected_patch(
    plugin: None, chromium: Browser, analysis: Analysis, tmp_path: Path
) -> None:
    tab = open_page(chromium, build_page(analysis, tmp_path / "page", network=False))
    assert texts(tab, "#tabs [role=tab]") == ["Filter", "Words", "Mix", "Drop", "Classes"]
    visible = "[...document.querySelectorAll('.panel')].filter((one) => one.checkVisibility()).map((one) => one.id)"
    assert tab.run(visible) == ["panel-filter"]
    press(tab, "#tab-classes")
    assert tab.run(visible) == ["panel-classes"]
    assert text(tab, "#panel-classes .mixture") == "Select a patch."
    counts = (analysis.features.softmax > 0.1).sum(1)  # type: ignore[operator]
    first, second = lone_patch(analysis), int(counts.argmax())
    assert counts[first] != counts[second]
    tab.click(*on_screen(tab, first))
    tab.rest()
    assert text(tab, "#panel-classes .mixture") == f"{counts[first]} of 10"
    tab.run(f"tembed.page.go({second}); 0")
    assert text(tab, "#panel-classes .mixture") == f"{counts[second]} of 10"
    tab.key("Escape")
    assert text(tab, "#panel-classes .mixture") == "Select a patch."
    other = open_page(chromium, tmp_path / "page" / "index.html", f"#tab=classes&patch={first}")
    assert other.run(visible) == ["panel-classes"], "the address restores the tab"
    assert text(other, "#panel-classes .mixture") == f"{counts[first]} of 10"
    own = (tmp_path / "page").as_uri()
    assert [r for r in tab.requests if not r.startswith((own, "data:", "blob:"))] == []
    assert tab.problems == other.problems == []
    tab.close()
    other.close()


@pytest.mark.browser
def test_a_page_with_some_of_the_images_finds_the_data_of_its_patches(
    plugin: None, chromium: Browser, analysis: Analysis, tmp_path: Path
) -> None:
    page = build_page(analysis, tmp_path / "page", network=False, most=20 * 16)
    counts = (analysis.features.softmax > 0.1).sum(1)  # type: ignore[operator]
    kept = np.concatenate([np.flatnonzero(analysis.features.labels == label)[:2] for label in range(10)])
    numbers = (np.sort(kept)[:, None] * 16 + np.arange(16)).ravel()
    moved = int(np.flatnonzero(counts[numbers] != counts[:320])[-1])
    tab = open_page(chromium, page, f"#tab=classes&patch={moved}")
    assert text(tab, "#panel-classes .mixture") == f"{counts[numbers[moved]]} of 10"
    assert tab.run("Array.from({ length: 320 }, (_, p) => tembed.page.patches.inAnalysis(p))") == numbers.tolist()
    tab.close()


@pytest.mark.browser
def test_hostile_text_stays_text(chromium: Browser, analysis: Analysis, tmp_path: Path) -> None:
    register_panel("texts", SHOW_DATA, lambda _: {"text": HOSTILE, HOSTILE: 1})
    page = build_page(analysis, tmp_path / "page", network=False)
    assert "<" not in (page.parent / "data" / "panels.js").read_text("utf-8")
    tab = open_page(chromium, page, "#tab=texts")
    assert text(tab, "#panel-texts p") == HOSTILE
    assert text(tab, "#tab-texts") == "<b>Texts</b>"
    assert tab.run("document.querySelectorAll('#panel-texts img, #tabs b').length") == 0
    assert tab.dialogs == []
    assert tab.problems == []
    tab.close()


@pytest.mark.browser
def test_a_failing_panel_says_so_and_leaves_the_page_alone(
    chromium: Browser, analysis: Analysis, tmp_path: Path
) -> None:
    for name, script in FAILING.items():
        register_panel(name, script)
    tab = open_page(chromium, build_page(analysis, tmp_path / "page", network=False), "#tab=making")
    assert texts(tab, "#tabs [role=tab]")[4:] == ["Making", "U", "syntax", "other-name"]
    assert text(tab, "#panel-making .message").startswith("This panel failed (<i>no</i>). ")
    for name in ("syntax", "other-name"):
        assert text(tab, f"#panel-{name} .message").startswith("This panel failed (its script did not register it). ")
    assert texts(tab, "#panel-updating .message") == []
    press(tab, "#tab-words")
    press(tab, ".words [data-word='3']")
    assert text(tab, ".picked h2").startswith("Word 4: "), "the page's own panel, not the one that took its name"
    assert "nothing is not defined" in text(tab, "#panel-updating .message")
    assert len(tab.problems) == 6
    tab.close()


@pytest.mark.browser
def test_many_tabs_stay_on_one_line_and_the_open_one_is_in_view(
    chromium: Browser, analysis: Analysis, tmp_path: Path
) -> None:
    for name in ("first", "second", "third"):
        register_panel(name, f"tembed.registerPanel('{name}', 'The {name} panel', class {{}});")
    page = build_page(analysis, tmp_path / "page", network=False)
    for size in ((1200, 800), (390, 844)):
        tab = chromium.open(page.as_uri() + "#tab=third", *size, reduced_motion="reduce")
        tab.wait("tembed.page")
        tops = tab.run("[...document.querySelectorAll('[role=tab]')].map((one) => one.getBoundingClientRect().top)")
        heights = tab.run("[...document.querySelectorAll('[role=tab]')].map((one) => one.offsetHeight)")
        assert len(tops) == 7
        assert len(set(tops)) == len(set(heights)) == 1
        assert tab.run("document.documentElement.scrollWidth") <= size[0]
        assert tab.run("document.querySelector('#tab-third').getBoundingClientRect().right") <= size[0]
        tab.close()


def test_the_own_panels_are_registered_in_the_same_way(registered: dict[str, panels.Panel]) -> None:
    assert list(registered) == OWN
    folder = panels.STATIC / "js" / "panels"
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(OWN)


@pytest.mark.parametrize("name", [*OWN, "mine"])
def test_a_name_that_is_taken_is_one_line(name: str) -> None:
    register_panel("mine", "first")
    with pytest.raises(TembedError, match=f"^a panel named '{name}' is already registered: choose another name$"):
        register_panel(name, "second")
    assert panels.panel_scripts()["mine"] == "first"


@pytest.mark.parametrize("name", ["", "Mine", "1st", "a b", "../mine", 'a"b', "mine\n"])
def test_a_name_has_to_fit_into_an_address(name: str) -> None:
    with pytest.raises(TembedError, match="cannot name a panel: use small letters, digits and hyphens"):
        register_panel(name, "script")


@pytest.mark.parametrize("as_path", [True, False])
def test_a_script_can_be_a_file(tmp_path: Path, as_path: bool) -> None:
    path = tmp_path / "mine.js"
    with pytest.raises(TembedError, match=r"cannot read the script .*mine\.js"):
        register_panel("mine", path if as_path else str(path))
    path.write_text("// fünf\n", "utf-8")
    register_panel("mine", path if as_path else str(path))
    assert panels.panel_scripts()["mine"] == "// fünf\n"


@pytest.mark.parametrize(
    ("value", "why"),
    [(np.float32(1), "float32 is not JSON serializable"), (float("nan"), "not JSON compliant"), ({(1, 2): 3}, "keys")],
)
def test_data_that_is_not_plain_names_the_panel(analysis: Analysis, tmp_path: Path, value: object, why: str) -> None:
    register_panel("mine", "script", lambda _: [value])
    with pytest.raises(TembedError, match=f"^the data of panel 'mine' cannot be written as JSON: .*{why}"):
        build_page(analysis, tmp_path / "page", network=False)
    assert not (tmp_path / "page").exists()
