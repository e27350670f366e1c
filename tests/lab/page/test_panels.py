"""Filters, words, parts, mixtures and search in a real browser, compared with the arrays of the analysis."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.chromium import Browser, Tab
from support.page import STAGE, lone_patch, on_screen, patches, pixels, press, shown, text, texts

from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.figures import mixture
from tembed.lab.page.builder import build_page
from tembed.lab.page.content import page_content

pytestmark = pytest.mark.browser


def test_clicking_keeps_a_patch_and_its_neighbours_lead_on(tab: Tab, analysis: Analysis) -> None:
    patch = lone_patch(analysis)
    tab.click(*on_screen(tab, patch))
    tab.mouse("Moved", 1100, 400)
    tab.rest()
    assert text(tab, "#card .label")
    assert f"patch={patch}" in tab.run("location.hash")
    neighbour = patches(tab, "#card .neighbours")[2]
    press(tab, "#card .neighbours [data-patch]:nth-child(3)")
    assert tab.run("Number(document.querySelector('#card').dataset.patch)") == neighbour
    assert on_screen(tab, neighbour) == pytest.approx(STAGE, abs=1)
    tab.key("Escape")
    assert tab.run("document.querySelector('#card').hidden")


def test_pictures_of_patches_say_how_much_of_the_evidence_they_hold(tab: Tab, analysis: Analysis) -> None:
    """Every group of pictures has the caption of the analysis near it."""
    tab.run("tembed.page.store.set({ mix: { 0: 0.5 }, word: 2 }); tembed.page.select(5); 0")
    tab.rest()
    assert analysis.view.caption in text(tab, "#card .evidence")
    groups = "[...document.querySelectorAll('.thumbs')].filter((one) => one.children.length)"
    near = "(one) => one.closest('#card, [role=tabpanel]').querySelector('.evidence').textContent"
    found = tab.run(f"{groups}.map({near})")
    assert len(found) == 5, "neighbours, words, the word's patches, a mixture, and the words of what passes the filter"
    assert all(analysis.view.caption in one for one in found)


def test_filters_leave_what_the_arrays_say(tab: Tab, analysis: Analysis) -> None:
    features = analysis.features
    labels, heads = features.labels[features.image_of], features.head[features.image_of]
    press(tab, "#panel-filter .chips [data-class='3']")
    press(tab, "#panel-filter .chips [data-class='5']")
    assert shown(tab) == np.flatnonzero((labels == 3) | (labels == 5)).tolist()
    assert text(tab, "#filters .summary") == "128 of 640 patches"
    press(tab, "[data-answer=wrong]")
    assert shown(tab) == np.flatnonzero(((labels == 3) | (labels == 5)) & (heads != labels)).tolist()
    press(tab, "#filters .summary + .link")
    assert len(shown(tab)) == 640
    predicted = int(heads[0])
    press(tab, f"#panel-filter .chips ~ .chips [data-class='{predicted}']")
    assert shown(tab) == np.flatnonzero(heads == predicted).tolist()
    tab.key("Escape")
    middle = float(np.median(features.entropy)) / np.log(10)  # type: ignore[arg-type]
    low = round(100 * middle)
    tab.run(
        f"(() => {{ const [a] = document.querySelectorAll('.range input'); a.value = {low};"
        "a.dispatchEvent(new Event('input')) })()"
    )
    expected = np.rint(65535 * features.entropy / np.log(10)) >= low / 100 * 65535  # type: ignore[operator]
    assert shown(tab) == np.flatnonzero(expected).tolist()


def test_the_sliders_stand_where_the_range_is(tab: Tab) -> None:
    tab.run("tembed.page.store.set({ entropy: [0.2, 0.8] }); 0")
    assert tab.run("[...document.querySelectorAll('.range input')].map((one) => one.value)") == ["20", "80"]
    assert "20 % to 80 %" in text(tab, "#panel-filter")


def test_the_buttons_zoom_in_and_out_by_the_same_factor(tab: Tab) -> None:
    for button, zoom in (("#zoom-in", 1.6), ("#zoom-in", 1.6**2), ("#zoom-out", 1.6), ("#zoom-out", 1)):
        press(tab, button)
        assert tab.run("tembed.page.map.zoom()") == pytest.approx(zoom)


def test_active_filters_are_named_in_every_tab_and_can_be_switched_off_there(tab: Tab, analysis: Analysis) -> None:
    assert not tab.run("document.querySelector('#filters').checkVisibility()")
    tab.run("tembed.page.store.set({ labels: [2, 5], answer: 'wrong', entropy: [0.1, 1], word: 3, part: 1 }); 0")
    chips = "#filters .chip span:not(.swatch)"
    named = [
        analysis.classes[2],
        analysis.classes[5],
        "wrong",
        "entropy 10 to 100 %",
        "word 4",
        page_content(analysis).about["parts"][0],
    ]
    for name in ("words", "mix", "drop", "filter"):
        press(tab, f"#tab-{name}")
        assert tab.run("document.querySelector('#filters').checkVisibility()")
        assert texts(tab, chips) == named
    press(tab, "#filters .chip:nth-child(2)")
    assert tab.run("tembed.page.store.state.labels") == [2]
    for _ in range(4):
        press(tab, "#filters .chip:nth-child(2)")
    assert texts(tab, chips) == [analysis.classes[2]]
    assert len(shown(tab)) == 64
    assert text(tab, "#filters .summary") == "64 of 640 patches"
    press(tab, "#filters .link")
    assert not tab.run("document.querySelector('#filters').checkVisibility()")
    assert len(shown(tab)) == 640


def test_zooming_to_the_selection_shows_all_of_it_and_back_undoes_it(tab: Tab) -> None:
    tab.run("tembed.page.store.set({ labels: [4] }); 0")
    tab.rest()
    tab.key("z")
    tab.rest()
    places = np.array([on_screen(tab, p) for p in shown(tab)])
    low, high = places.min(0), places.max(0)
    assert (low > [0, 60]).all()
    assert (high < [880, 800]).all()
    assert ((high - low) / [880, 740]).max() == pytest.approx(0.8, abs=0.01), "as near as possible"
    for labels, zoom in (([4], 1), ([], 1)):
        tab.run("history.back()")
        tab.wait(f"JSON.stringify(tembed.page.store.state.labels) === '{json.dumps(labels)}'")
        tab.wait(f"Math.abs(tembed.page.map.zoom() - {zoom}) < 1e-3")
    tab.run("history.forward()")
    tab.wait("tembed.page.map.mask.reduce((a, b) => a + b) === 64")
    tab.run("tembed.page.clearFilters(); tembed.page.select(100); 0")
    press(tab, "#zoom-selection")
    places = np.array([on_screen(tab, p) for p in range(96, 112)])
    tab.run("tembed.page.map.zoomTo([...Array(640).keys()])")
    tab.rest()
    x, y = np.array([on_screen(tab, p) for p in range(640)]).T
    assert (x < 0).any() or (y < 60).any(), "of many patches, the outermost tenth may lie outside"
    middle = [np.quantile(x, [0.1, 0.9]) / 880, (np.quantile(y, [0.1, 0.9]) - 60) / 740]
    assert max(high - low for low, high in middle) == pytest.approx(0.8, abs=0.02)
    assert ((places > [0, 60]) & (places < [880, 800])).all(), "without a filter, the patches of the selected image"


def test_back_undoes_one_step_and_a_slider_is_one_step(tab: Tab) -> None:
    tab.run("tembed.page.store.set({ layout: 1 }); tembed.page.map.setCamera({ x: 0.3, y: 0.5, scale: 900 }, false)")
    tab.rest()
    tab.run("for (let k = 1; k < 20; k++) tembed.page.store.set({ mix: { 2: k / 20 } }); 0")
    tab.run("tembed.page.store.set({ patch: 7 }); 0")
    tab.rest()
    tab.run("history.back()")
    tab.wait("tembed.page.store.state.patch === null")
    assert tab.run("tembed.page.store.state.mix") == {"2": 0.95}
    tab.run("history.back()")
    tab.wait("!Object.keys(tembed.page.store.state.mix).length")
    assert tab.run("tembed.page.store.state.layout") == 1
    assert tab.run("tembed.page.map.camera.scale") == pytest.approx(900, rel=1e-3), "the view that it had there"
    tab.run("history.back()")
    tab.wait("tembed.page.store.state.layout === 4")


def test_filtered_patches_fade(tab: Tab) -> None:
    before = np.ptp(pixels(tab)[60:, :820], axis=2).mean()
    tab.run("tembed.page.store.set({ labels: [0] }); 0")
    tab.rest()
    assert np.ptp(pixels(tab)[60:, :820], axis=2).mean() < 0.5 * before


def test_a_region_is_brushed_and_described(tab: Tab, analysis: Analysis) -> None:
    start, end = (200.0, 150.0), (470.0, 500.0)
    tab.drag(start, end, modifiers=8)  # shift
    tab.rest()
    inside = []
    for p in range(640):
        x, y = on_screen(tab, p)
        if start[0] <= x <= end[0] and start[1] <= y <= end[1]:
            inside.append(p)
    assert 0 < len(inside) < 640
    assert abs(len(set(shown(tab)) ^ set(inside))) <= 1
    labels = analysis.features.labels[analysis.features.image_of][shown(tab)]
    shares = [float(number) for number in texts(tab, ".tallies .bar .number")]
    np.testing.assert_allclose(shares, np.bincount(labels, minlength=10) / len(labels), atol=0.0051)
    words = np.bincount(analysis.words.word_of[shown(tab)], minlength=20)
    points = page_content(analysis).about["words"]["points"]
    best = patches(tab, ".tallies .thumbs")
    assert words[points.index(best[0])] == words.max()


def test_a_word_shows_its_patches_side_by_side(tab: Tab, analysis: Analysis) -> None:
    press(tab, "#tab-words")
    word = int(analysis.words.chosen[1])
    press(tab, f".words [data-word='{word}']")
    members = np.flatnonzero(analysis.words.word_of == word)
    assert shown(tab) == members.tolist()
    found = patches(tab, ".gallery")
    assert len(found) == min(60, len(members))
    assert set(found) <= set(members.tolist())
    p, centre = analysis.features.softmax, analysis.words.centres[word]
    far = np.square(p - centre).sum(1)  # type: ignore[operator]
    np.testing.assert_allclose(far[found], np.sort(far[members])[:60], atol=5e-3)
    assert text(tab, ".picked .mixture") == mixture(np.round(centre, 4), analysis.classes)


def test_a_part_shows_where_it_went(tab: Tab, analysis: Analysis) -> None:
    part = int(page_content(analysis).arrays["parts"].max())
    tab.run(
        f"(() => {{ const s = document.querySelector('#panel-filter select'); s.value = {part};"
        "s.dispatchEvent(new Event('change')) })()"
    )
    assert shown(tab) == np.flatnonzero(page_content(analysis).arrays["parts"] == part).tolist()


def test_mixing_class_vectors_finds_the_nearest_patches(tab: Tab, analysis: Analysis) -> None:
    features = analysis.features
    assert features.values is not None
    press(tab, "#tab-mix")
    for k in (2, 7):
        tab.run(
            f"(() => {{ const s = document.querySelector('.slider [data-class=\"{k}\"]'); s.value = 0.5;"
            "s.dispatchEvent(new Event('input')) })()"
        )
    tab.rest()
    strength = np.median(features.mixing.sum(1))  # type: ignore[union-attr]
    wanted = 0.5 * strength * (features.values[2] + features.values[7])
    far = np.linalg.norm(features.embedding - wanted, axis=1).reshape(40, 16)
    found = patches(tab, ".mixed")
    np.testing.assert_allclose(far.ravel()[found], np.sort(far.min(1))[:24], rtol=1e-3)
    assert text(tab, ".result .mixture") == "0.5 car & truck + 0.5 seven"
    assert tab.run("document.querySelectorAll('#overlay .marker').length") == 1
    assert "mix=2%3A0.5%2C7%3A0.5" in tab.run("location.hash")


def test_a_search_without_a_result_says_so(tab: Tab) -> None:
    tab.key("/")
    tab.send("Input.insertText", {"text": "zebra"})
    assert text(tab, "#found") == "no match"
    tab.key("Enter")
    assert len(shown(tab)) == 640
    tab.key("Escape")
    assert text(tab, "#found") == ""


def test_searching_finds_classes_words_and_parts(tab: Tab, analysis: Analysis) -> None:
    tab.run("tembed.page.store.set({ tab: 'mix' }); 0")
    tab.key("/")
    for letter in "car":
        tab.send("Input.insertText", {"text": letter})
    assert texts(tab, "#found button")[0] == "class car & truck"
    tab.key("Enter")
    tab.rest()
    labels = analysis.features.labels[analysis.features.image_of]
    assert shown(tab) == np.flatnonzero(labels == 2).tolist()
    assert tab.run("tembed.page.store.state.tab") == "filter", "where the class can be seen and switched off"
    assert tab.run("document.activeElement.id") == "stage"
    assert tab.run("tembed.search(tembed.page.patches, 'word 7:')[0].changes.word") == 6
    assert tab.run("tembed.search(tembed.page.patches, 'fin')[0].text") == "part fin"
    tab.run("document.activeElement.blur()")


def test_deep_supervision_has_neighbours_by_prediction_and_nothing_to_mix(
    chromium: Browser, supervised: Analysis, tmp_path: Path
) -> None:
    page = build_page(supervised, tmp_path / "page", network=False)
    tab = chromium.open(page.as_uri() + "#tab=mix&patch=100", reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    assert "no class vectors" in text(tab, "#panel-mix")
    assert tab.run("document.querySelectorAll('.vector').length") == 0
    p = np.rint(1000 * supervised.features.softmax) / 1000  # type: ignore[operator]
    far = np.linalg.norm(p - p[100], axis=1).reshape(40, 16)
    far[6] = np.inf  # its own image
    found = patches(tab, "#card .neighbours")
    np.testing.assert_allclose(far.ravel()[found], np.sort(far.min(1))[:12], atol=1e-4)
    assert tab.problems == []
    tab.close()


def test_a_region_keeps_its_patches_in_other_layouts(tab: Tab, chromium: Browser) -> None:
    tab.drag((200.0, 150.0), (470.0, 500.0), modifiers=8)
    tab.rest()
    inside = shown(tab)
    box = "(b => [b.left, b.top, b.right, b.bottom])(document.querySelector('.region').getBoundingClientRect())"
    assert tab.run(box) == pytest.approx([200, 150, 470, 500], abs=1)
    tab.key("2")
    tab.rest()
    assert shown(tab) == inside, "the same patches, wherever they went"
    assert tab.run("document.querySelectorAll('.region').length") == 0, "the box belongs to its own layout"
    other = chromium.open(tab.run("location.href"), reduced_motion="reduce")
    other.wait("tembed.page")
    assert shown(other) == inside
    other.close()


def test_the_list_of_a_search_closes_when_the_user_goes_on(tab: Tab) -> None:
    tab.key("/")
    tab.send("Input.insertText", {"text": "six"})
    assert texts(tab, "#found button")
    tab.click(60, 740)
    tab.rest()
    assert texts(tab, "#found button") == []
    tab.run("document.querySelector('#search').value = ''; document.activeElement.blur()")


def test_escape_closes_the_search_and_keeps_the_filters(tab: Tab) -> None:
    tab.run("tembed.page.store.set({ word: 3 }); 0")
    tab.key("/")
    tab.send("Input.insertText", {"text": "six"})
    assert texts(tab, "#found button")
    tab.key("Escape")
    tab.rest()
    assert texts(tab, "#found button") == []
    assert tab.run("tembed.page.store.state.word") == 3
    assert tab.run("document.activeElement.id") == "stage"
    tab.key("Escape")
    tab.rest()
    assert tab.run("tembed.page.store.state.word") is None


def test_escape_never_loses_the_focus(tab: Tab) -> None:
    """From a result of the search to its field, from a card or a filter that is gone to the map."""
    tab.key("/")
    tab.send("Input.insertText", {"text": "six"})
    tab.run("document.querySelector('#found button').focus()")
    tab.key("Escape")
    assert tab.run("document.activeElement.id") == "search"
    tab.run("tembed.page.store.set({ patch: 5, word: 3 }); document.querySelector('#card .neighbours button').focus()")
    tab.key("Escape")
    assert tab.run("document.activeElement.id") == "stage"
    tab.run("document.querySelector('#filters .chip').focus()")
    tab.key("Escape")
    assert tab.run("[document.activeElement.id, tembed.page.store.state.word]") == ["stage", None]


def test_both_ends_of_the_entropy_range_can_be_dragged_on_one_track(tab: Tab) -> None:
    for start, end in ((0.02, 0.3), (0.98, 0.7)):
        left, wide, y = tab.run(
            "(() => { const one = document.querySelector('.range'); one.scrollIntoView({ block: 'center' });"
            "const b = one.getBoundingClientRect(); return [b.left, b.width, b.top + b.height / 2] })()"
        )
        tab.drag((left + start * wide, y), (left + end * wide, y))
        tab.rest()
    assert tab.run("tembed.page.store.state.entropy") == pytest.approx([0.3, 0.7], abs=0.04)


def test_pictures_stand_in_full_rows(tab: Tab) -> None:
    tab.run("tembed.page.store.set({ patch: 100, labels: [3] }); 0")
    tab.rest()
    for row in ("#card .neighbours", ".tallies .thumbs"):
        lefts = tab.run(
            f"[...document.querySelectorAll('{row} .patch')].map((one) => one.getBoundingClientRect().left)"
        )
        assert len(lefts) % len(set(lefts)) == 0, row
