"""The page in a real browser, from disk: what it shows is compared with the arrays of the analysis."""

import dataclasses
import itertools
import json
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image
from support.chromium import Browser, Tab
from support.page import lone_patch, on_screen, patches, pixels, press, show_alone, text, texts

from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.features import patch_span
from tembed.lab.analysis.figures import mixture
from tembed.lab.page.builder import build_page
from tembed.lab.page.content import page_content, unit_square

pytestmark = pytest.mark.browser
SMALL_TEXTURES = """(() => {
  const { prototype } = WebGL2RenderingContext, { getParameter, texImage2D } = prototype;
  const most = %d;
  prototype.getParameter = function (name) {
    return name === this.MAX_TEXTURE_SIZE ? most : getParameter.call(this, name);
  };
  prototype.texImage2D = function (...given) {
    const [width, height] = given.length < 9 ? [given[5].width, given[5].height] : given.slice(3);
    if (width <= most && height <= most) texImage2D.apply(this, given); // a device leaves a larger one undefined
  };
})()"""
CLASS_NAMES = """tembed.page.map.items.filter((one) => one.kind === "name" && one.element.checkVisibility())
  .map(({ element, place }) => [Number(element.dataset.class), ...place()])"""


def test_it_loads_from_disk_without_errors_or_requests(tab: Tab, folder: Path, analysis: Analysis) -> None:
    assert text(tab, "#title") == "rn26-embed on hostile"
    assert text(tab, "#subtitle") == f"640 patches of 40 test images. {analysis.view.caption}"
    assert texts(tab, "#layouts button") == ["Baseline", "Block input", "Block output", "Predictions", "Embedding"]
    own = folder.as_uri()
    assert [r for r in tab.requests if not r.startswith((own, "data:", "blob:"))] == []
    assert not any("network/" in request for request in tab.requests), "the network is loaded on demand only"
    assert tab.problems == []
    assert tab.dialogs == []
    assert tab.run("document.querySelectorAll('img, iframe, object').length") == 0


@pytest.mark.parametrize("row", [1, 3])
@pytest.mark.parametrize("column", [0, 3])
def test_every_picture_is_drawn_at_its_place(tab: Tab, analysis: Analysis, row: int, column: int) -> None:
    """What a patch's picture shows is the part of its window that lies inside its image, upscaled, and nothing else.

    A window has 8 x 8 of the image's 16 x 16 pixels and is 64 pixels wide on the screen; windows at the last place
    of the map reach beyond the image.
    """
    patch = 16 * 23 + 4 * row + column
    show_alone(tab, patch)
    x, y = on_screen(tab, patch)
    features = analysis.features
    (top, bottom), (left, right) = (patch_span(index, 2, 4) for index in (row, column))
    inside = analysis.images[23, max(0, top) : min(16, bottom), max(0, left) : min(16, right)]
    high, wide = (8 * side for side in inside.shape[:2])
    assert (high, wide) == (32 if row == 3 else 64, 32 if column == 3 else 64)
    screen = pixels(tab)
    tile = screen[round(y - high / 2) :, round(x - wide / 2) :][:high, :wide]
    np.testing.assert_allclose(tile[high - 10, 2], analysis.colours[features.labels[23]], atol=3)
    np.testing.assert_allclose(tile[2, wide - 3], analysis.colours[features.labels[23]], atol=3)
    np.testing.assert_allclose(tile[8, 8], analysis.colours[features.head[23]], atol=3)
    shade = 255 * features.entropy[patch] / np.log(10)  # type: ignore[index]
    np.testing.assert_allclose(tile[high // 2, wide // 2], [shade] * 3, atol=3)
    press(tab, "#panel-filter input[type=checkbox]")
    tile = pixels(tab)[round(y - high / 2) :, round(x - wide / 2) :][:high, :wide].astype(np.uint8)
    small = Image.fromarray(tile).resize(inside.shape[1::-1], Image.Resampling.BOX)
    assert np.abs(np.asarray(small).astype(int) - inside).mean() < 16


def test_from_afar_the_map_shows_density_in_class_colours(tab: Tab, analysis: Analysis) -> None:
    tab.run("tembed.page.map.setCamera({ x: 0.5, y: 0.5, scale: 140 }, false)")
    tab.rest()
    assert tab.run("tembed.camera.pictures(tembed.camera.tile(tembed.page.map.camera, 640))") == 0
    stage = pixels(tab)[60:, :820]
    coloured = stage[np.ptp(stage, axis=2) > 40]
    assert len(coloured) > 300
    colours = np.array(analysis.colours)
    assert (np.abs(coloured[:, None] - colours).sum(2).min(1) < 150).mean() > 0.5


def test_hovering_shows_the_patch_of_the_analysis(tab: Tab, analysis: Analysis) -> None:
    features, content = analysis.features, page_content(analysis)
    assert features.softmax is not None
    assert features.embedding is not None
    patch = lone_patch(analysis)
    tab.mouse("Moved", *on_screen(tab, patch))
    tab.wait(f"document.querySelector('#card').dataset.patch === '{patch}'")
    image, row, column = features.position(patch)
    assert text(tab, "#card .label") == analysis.classes[features.labels[image]]
    right = "✓" if features.head[image] == features.labels[image] else "✗"
    assert text(tab, "#card .head") == f"{analysis.classes[features.head[image]]} {right}"
    assert text(tab, "#card .image") == str(image + 1), "without files, images have numbers"
    assert text(tab, "#card .position") == f"{row + 1}, {column + 1}"
    (top, bottom), (left, end) = content.about["rows"][row], content.about["columns"][column]
    assert text(tab, "#card .pixels") == f"x {left} to {end}, y {top} to {bottom}"
    assert text(tab, "#card .mixture") == mixture(np.round(features.softmax[patch], 3), analysis.classes)
    bars = [float(number) for number in texts(tab, "#card .bar .number")]
    np.testing.assert_allclose(bars, features.softmax[patch], atol=0.0061)
    entropy = float(features.entropy[patch])  # type: ignore[index]
    assert text(tab, "#card .entropy").startswith(f"{entropy:.2f} nats")
    assert text(tab, "#card .word").startswith(f"{analysis.words.word_of[patch] + 1}: ")

    far = np.linalg.norm(features.embedding - features.embedding[patch], axis=1).reshape(40, 16)
    order = [k for k in np.argsort(far.min(1)) if k != image][:12]
    found = patches(tab, "#card .neighbours")
    np.testing.assert_allclose([far.ravel()[p] for p in found], far.min(1)[order], rtol=1e-3)

    lit = tab.run("[...tembed.page.map.drawing.states.keys()].filter((p) => tembed.page.map.drawing.states[p] === 2)")
    assert lit == list(range(16 * image, 16 * image + 16)), "all patches of the same image"
    tab.mouse("Moved", 1100, 400)
    tab.wait("document.querySelector('#card').hidden")


def test_layouts_move_patches_and_names_and_only_the_embedding_has_vectors(tab: Tab, analysis: Analysis) -> None:
    names = ["baseline", "block input", "block output", "predictions", "embedding vectors"]
    maps = analysis.geometry_maps | analysis.sprite_maps
    for number, name in enumerate(names):
        tab.key(str(number + 1))
        tab.rest()
        square = unit_square(maps[name]) / 65535
        np.testing.assert_allclose(tab.run("tembed.page.map.place(333)"), square[333], atol=1e-9)
        visible = tab.run("[...document.querySelectorAll('.vector')].filter((v) => v.checkVisibility()).length")
        assert visible == (11 if name == "embedding vectors" else 0)
        labels = analysis.features.labels[analysis.features.image_of]
        named = tab.run(CLASS_NAMES)
        assert named, "classes are named in every layout"
        for k, x, y in named:
            own = square[:640][labels == k]
            _, cell, counts = np.unique(np.floor(24 * own), axis=0, return_inverse=True, return_counts=True)
            densest = [own[cell.ravel() == one].mean(0) for one in np.flatnonzero(counts == counts.max())]
            assert min(np.abs(place - [x, y]).max() for place in densest) < 1e-3, "where most of their patches are"
    corner = "(b => [b.left, b.top])(document.querySelector('[data-vector=\"0\"]').getBoundingClientRect())"
    x, y = on_screen(tab, 640)
    assert tab.run(corner) == pytest.approx([x - 9, y - 9], abs=0.6)


def test_a_change_of_layout_is_animated_unless_motion_is_reduced(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri())
    tab.wait("tembed.page")
    tab.rest()
    seen = tab.run(  # at given times: the frames of a busy machine may be far apart
        "(() => { const m = tembed.page.map; tembed.page.store.set({ layout: 0 });"
        "const at = (now) => { m.requested = false; m.frame(now); return [m.moved, m.requested] };"
        "return [1000, 1300, 1600, 1900].map(at) })()"
    )
    (start, *between, end), requested = zip(*seen, strict=True)
    assert (start, end) == (0, 1)
    assert 0 < between[0] < between[1] < 1
    assert requested == (True, True, True, False)
    tab.close()


def test_the_address_restores_the_view(tab: Tab, chromium: Browser, folder: Path) -> None:
    tab.run("tembed.page.store.set({ layout: 1, labels: [4], tab: 'words', marks: false, patch: 77 }); 0")
    tab.run("tembed.page.map.setCamera({ x: 0.3, y: 0.6, scale: 3000 }, false)")
    tab.rest()
    before = pixels(tab)
    other = chromium.open(tab.run("location.href"), reduced_motion="reduce")
    other.wait("tembed.page")
    other.rest()
    for question in (
        "tembed.page.store.state",
        "[...tembed.page.map.mask]",
        "document.querySelector('#card').textContent",
    ):
        assert other.run(question) == tab.run(question)
    assert other.run("tembed.page.map.camera.scale") == pytest.approx(3000, rel=1e-3)
    assert np.abs(pixels(other) - before).mean() < 1
    other.close()


def test_the_keyboard_moves_zooms_and_selects(tab: Tab) -> None:
    tab.run("document.querySelector('#stage').focus()")
    before = tab.run("tembed.page.map.camera")
    tab.key("+")
    tab.key("ArrowRight")
    tab.key("ArrowDown")
    after = tab.run("tembed.page.map.camera")
    assert after["scale"] == pytest.approx(1.4 * before["scale"])
    assert (after["x"] - before["x"]) * after["scale"] == pytest.approx(80)
    assert (after["y"] - before["y"]) * after["scale"] == pytest.approx(80)
    tab.key("Enter")
    patch = tab.run("tembed.page.store.state.patch")
    places = np.array(tab.run("[...tembed.page.map.layout]")).reshape(-1, 2)[:640] / 65535
    assert patch == np.hypot(*(places - [after["x"], after["y"]]).T).argmin()
    tab.key("]")
    assert tab.run("tembed.page.store.state.patch") == patch // 16 * 16 + (patch + 1) % 16
    tab.key("m")
    assert tab.run("tembed.page.store.state.marks") is False
    tab.key("0")
    tab.rest()
    assert tab.run("tembed.page.map.zoom()") == pytest.approx(1)


def test_the_wheel_and_the_mouse_zoom_and_pan(tab: Tab) -> None:
    x, y = on_screen(tab, 100)
    tab.mouse("Wheel", x, y, deltaX=0, deltaY=-400)
    tab.rest()
    assert tab.run("tembed.page.map.zoom()") == pytest.approx(np.exp(0.64), rel=1e-3)
    assert on_screen(tab, 100) == pytest.approx((x, y), abs=1)  # the browser rounds the pointer to whole pixels
    x, y = on_screen(tab, 100)
    empty = (60.0, 700.0)
    tab.drag(empty, (160.0, 640.0))
    tab.rest()
    assert on_screen(tab, 100) == pytest.approx((x + 100, y - 60), abs=0.5)


def test_fingers_pinch_pan_and_tap_on_a_phone(chromium: Browser, folder: Path, analysis: Analysis) -> None:
    tab = chromium.open((folder / "index.html").as_uri(), 390, 844, reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    assert tab.run("document.documentElement.scrollWidth") <= 390
    patch = lone_patch(analysis)
    x, y = on_screen(tab, patch)
    tab.touch("Start", (x - 30, y), (x + 30, y))
    tab.touch("Move", (x - 60, y), (x + 60, y))
    tab.touch("End")
    tab.rest()
    assert tab.run("tembed.page.map.zoom()") == pytest.approx(2, rel=0.02)
    assert on_screen(tab, patch) == pytest.approx((x, y), abs=1)
    tab.touch("Start", (x, y), (x, y))  # fingers that start at one place count as one pixel apart
    tab.touch("Move", (x - 1, y), (x + 1, y))
    tab.touch("End")
    tab.rest()
    assert tab.run("tembed.page.map.zoom()") == pytest.approx(4, rel=0.02)
    tab.touch("Start", (x, y))
    tab.touch("Move", (x + 10, y + 5))
    tab.touch("Move", (x + 20, y + 10))
    tab.touch("End")
    tab.rest()
    x, y = on_screen(tab, patch)
    tab.touch("Start", (x, y))
    tab.touch("End")
    tab.wait(f"tembed.page.store.state.patch === {patch}")
    assert tab.run("document.querySelector('#card').checkVisibility()")
    assert tab.problems == []
    tab.close()


def test_a_second_finger_ends_the_selection_of_a_region(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri(), 390, 844, reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    tab.run("tembed.page.setBrushing(true); 0")
    tab.touch("Start", (100, 200))
    tab.touch("Move", (160, 260))
    assert tab.run("document.querySelectorAll('.brush').length") == 1
    tab.touch("Start", (160, 260), (250, 300))
    tab.touch("End")
    tab.rest()
    assert tab.run("document.querySelectorAll('.brush').length") == 0
    assert tab.run("tembed.page.store.state.region") is None
    tab.close()


def test_a_resized_map_is_never_shown_empty(tab: Tab) -> None:
    """A canvas is empty after a change of its size, and the browser shows it before the next frame is drawn."""
    colour = tab.run(
        "(() => { const { canvas, width } = tembed.page.map; canvas.width = canvas.width; tembed.page.map.resize();"
        "const gl = canvas.getContext('webgl2'), found = new Uint8Array(4);"
        "gl.readPixels(1, 1, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, found); return [...found] })()"
    )
    paper = tab.run("tembed.page.map.colours.paper.map((value) => Math.round(255 * value))")
    assert colour[:3] == pytest.approx(paper, abs=12)


def test_dark_follows_the_system_and_the_button(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri(), color_scheme="dark", reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    assert pixels(tab)[760, 100].max() < 40
    press(tab, "#theme")
    assert pixels(tab)[760, 100].min() > 240
    assert "theme=light" in tab.run("location.hash")
    tab.close()


def test_without_webgl2_the_page_says_so(chromium: Browser, folder: Path) -> None:
    tab = chromium.open("about:blank")
    script = "HTMLCanvasElement.prototype.getContext = function () { return null }"
    tab.send("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    tab.send("Page.navigate", {"url": (folder / "index.html").as_uri()})
    tab.wait("window.tembed && document.querySelector('#message') && !document.querySelector('#message').hidden")
    assert "WebGL2" in text(tab, "#message")
    assert tab.problems == []
    tab.close()


def test_a_missing_or_damaged_data_file_is_explained(chromium: Browser, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    arrays = (copy / "data" / "arrays.js").read_text()
    (copy / "data" / "arrays.js").write_text(arrays[: arrays.index("tembed.store", 10)])
    tab = chromium.open((copy / "index.html").as_uri())
    tab.wait("!document.querySelector('#message').hidden")
    assert "Build it again" in text(tab, "#message")
    (copy / "data" / "about.js").unlink()
    tab.reload()
    tab.wait("/copy the whole folder/.test((document.querySelector('#message') || {}).textContent)")
    tab.close()


def test_it_works_from_a_web_server(chromium: Browser, folder: Path) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        own = f"http://127.0.0.1:{server.server_port}/"
        tab = chromium.open(own)
        tab.wait("tembed.page")
        assert [r for r in tab.requests if not r.startswith((own, "data:", "blob:"))] == []
        assert tab.problems == []
        tab.close()
        server.shutdown()
        thread.join()


def test_a_lost_graphics_context_comes_back(tab: Tab) -> None:
    before = pixels(tab)
    tab.run("tembed.lost = tembed.page.map.drawing.gl.getExtension('WEBGL_lose_context'); tembed.lost.loseContext(); 0")
    tab.wait("tembed.page.map.drawing.gl.isContextLost()")
    tab.run("tembed.page.map.draw(); tembed.lost.restoreContext(); 0")
    tab.wait("!tembed.page.map.drawing.gl.isContextLost()")
    tab.rest()
    assert np.abs(pixels(tab) - before).mean() < 0.5


def test_the_page_explains_itself_on_demand(tab: Tab) -> None:
    tab.key("?")
    assert tab.run("document.querySelector('#help').open")
    said = text(tab, "#help")
    assert all(word in said for word in ("patch", "Frame", "Corner", "Centre", "Baseline", "Embedding", "Back"))
    tab.key("1")
    assert tab.run("tembed.page.store.state.layout") == 4, "keys are not for the map below"
    tab.run("document.querySelector('#help').close()")
    press(tab, "#what")
    assert tab.run("document.querySelector('#help').open")
    tab.run("document.querySelector('#help').close()")


def test_the_focus_on_the_map_can_be_seen(tab: Tab) -> None:
    tab.run("document.querySelector('#theme').focus()")
    before = pixels(tab)
    tab.run("document.querySelector('#stage').focus({ focusVisible: true })")
    tab.rest()
    accent = [209, 0, 108]
    edge = pixels(tab)[400, :3]
    np.testing.assert_allclose(edge, [accent] * 3, atol=3, err_msg="above the canvas")
    assert not np.allclose(before[400, :3], accent, atol=3)


def test_no_outline_is_cut_off_and_headings_follow_each_other(tab: Tab) -> None:
    """An outline reaches 4 pixels beyond its element: no ancestor that scrolls may end before."""
    tab.run("tembed.page.store.set({ labels: [2], patch: 5, word: 3 }); 0")
    tab.rest()
    cut = tab.run(
        """[...document.querySelectorAll(".chip, .patch, .link")].filter((one) => {
          if (!one.checkVisibility()) return false;
          const parent = one.closest(".chips, .panel, #card, aside"), a = one.getBoundingClientRect();
          const b = parent.getBoundingClientRect();
          return a.left - 4 < b.left || a.right + 4 > b.right || (parent.scrollTop === 0 && a.top - 4 < b.top);
        }).length"""
    )
    assert cut == 0
    levels = tab.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_dark_pages_show_the_classes_in_colours_that_can_be_seen(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri(), color_scheme="dark", reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    shown = tab.run(
        "[...document.querySelector('#panel-filter .chips').querySelectorAll('.swatch')]"
        ".map((one) => getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number))"
    )
    expected = tab.run("tembed.onPaper(tembed.about.colours, [15, 18, 23])")
    assert shown == expected
    frames = tab.run("[...tembed.page.map.drawing.frames.slice(0, 3)]")
    assert frames == expected[tab.run("tembed.page.patches.label[0]")], "the frames on the map have the same colours"
    tab.close()


COLOURS = np.random.default_rng(3).integers(0, 256, (40, 1, 1, 3), np.uint8)
"""A colour for each image: one that came from a neighbour, or from nowhere, would be seen."""


@pytest.fixture(scope="module")
def large_page(analysis: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that fill the largest atlas."""
    large = dataclasses.replace(analysis)
    known = ("geometry_maps", "sprite_maps", "words", "effective_field")
    images = np.broadcast_to(COLOURS, (40, 720, 720, 3))
    large.__dict__.update({name: getattr(analysis, name) for name in known} | {"images": images})
    return build_page(large, tmp_path_factory.mktemp("large") / "page", network=False)


@pytest.mark.parametrize("most", [4096, 2048])
def test_small_textures_show_the_same_pictures(chromium: Browser, large_page: Path, most: int) -> None:
    """On a device that refuses larger textures."""
    tab = chromium.open("about:blank", reduced_motion="reduce")
    tab.send("Page.addScriptToEvaluateOnNewDocument", {"source": SMALL_TEXTURES % most})
    tab.send("Page.navigate", {"url": large_page.as_uri() + "#marks=off"})
    tab.wait("window.tembed && tembed.page")
    assert 4000 < max(tab.run("[tembed.page.pictures.atlas.width, tembed.page.pictures.atlas.height]")) <= 4096
    for image in (0, 17, 39):
        show_alone(tab, 16 * image + 5)
        x, y = on_screen(tab, 16 * image + 5)
        tile = pixels(tab)[round(y) - 30 : round(y) + 30, round(x) - 30 : round(x) + 30]
        np.testing.assert_allclose(tile, np.broadcast_to(COLOURS[image], tile.shape), atol=6)
    assert tab.problems == []
    tab.close()


def middle(tab: Tab, selector: str) -> tuple[float, float]:
    """The middle of an element in the window."""
    box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
    x, y = tab.run(f"(b => [b.left + b.width / 2, b.top + b.height / 2])({box})")
    return x, y


def test_quick_clicks_on_a_zoom_button_zoom_on_the_middle_only(tab: Tab) -> None:
    x, y = middle(tab, "#zoom-in")
    for count in (1, 2):
        for kind in ("Pressed", "Released"):
            tab.mouse(kind, x, y, button="left", clickCount=count)
    tab.rest()
    assert tab.run("tembed.page.map.zoom()") == pytest.approx(1.6**2)
    assert tab.run("[tembed.page.map.camera.x, tembed.page.map.camera.y]") == pytest.approx([0.5, 0.5])


def test_the_card_never_covers_the_patch_that_it_describes(tab: Tab) -> None:
    tab.run("tembed.page.map.setCamera({ x: 0.8, y: 0.5, scale: 700 }, false)")
    tab.rest()
    places = {p: on_screen(tab, p) for p in range(0, 640, 5)}
    inside = {p: (x, y) for p, (x, y) in places.items() if 20 < x < 860 and 80 < y < 780}
    for patch in (min(inside, key=lambda p: inside[p][0]), max(inside, key=lambda p: inside[p][0])):
        tab.mouse("Moved", *inside[patch])
        tab.rest()
        tab.wait("!document.querySelector('#card').hidden")
        left, right = tab.run("(b => [b.left, b.right])(document.querySelector('#card').getBoundingClientRect())")
        assert not left < inside[patch][0] < right


def test_the_card_of_a_selected_patch_takes_the_pointer_from_patches_below_it(tab: Tab, analysis: Analysis) -> None:
    patch = lone_patch(analysis)
    tab.run(f"tembed.page.go({patch}); tembed.page.map.setCamera({{ x: 0.6, y: 0.5, scale: 700 }}, false)")
    tab.rest()
    left, top, right, bottom = tab.run(
        "(b => [b.left, b.top, b.right, b.bottom])(document.querySelector('#card').getBoundingClientRect())"
    )
    places = [on_screen(tab, p) for p in range(640)]
    beside = next((x, y) for x, y in places if right + 20 < x < 850 and 100 < y < 700)
    x, y = next((x, y) for x, y in places if left + 5 < x < right - 5 and top + 5 < y < bottom - 5)
    tab.mouse("Moved", *beside)  # another patch, on the way to the card
    tab.wait(f"document.querySelector('#card').dataset.patch !== '{patch}'")
    tab.mouse("Moved", x, y)
    tab.rest()
    assert tab.run("Number(document.querySelector('#card').dataset.patch)") == patch
    assert tab.run(f"document.elementFromPoint({x}, {y}).closest('#card') !== null")


def test_a_dark_page_is_dark_before_its_data_is_there(chromium: Browser, folder: Path) -> None:
    tab = chromium.open("about:blank", color_scheme="dark")
    script = "HTMLCanvasElement.prototype.getContext = function () { return null }"
    tab.send("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    tab.send("Page.navigate", {"url": (folder / "index.html").as_uri()})
    tab.wait("document.querySelector('#message') && !document.querySelector('#message').hidden")
    assert pixels(tab)[780, 300].max() < 40
    assert "Loading" not in text(tab, "#subtitle")
    tab.close()


def test_no_name_and_no_vector_covers_another(tab: Tab) -> None:
    boxes = (
        "[...document.querySelectorAll('.class-name, .vector')].filter((one) => one.checkVisibility())"
        ".map((one) => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] })"
    )
    shown = []
    for scale in (4, 60, 700, 20000):
        tab.run(f"tembed.page.map.setCamera({{ x: 0.5, y: 0.5, scale: {scale} }}, false)")
        tab.rest()
        found = tab.run(boxes)
        for a, b in itertools.combinations(found, 2):
            assert not (a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1)
        shown.append(len(found))
    assert 11 <= shown[0] < shown[-1] == 21, "all vectors always, all names from near"


def test_on_a_tablet_held_upright_the_panels_are_below_the_map(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri() + "#patch=100", 820, 1180, reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.rest()
    assert tab.run("document.querySelector('#stage').clientWidth") == 820
    title = "document.querySelector('#title')"
    assert tab.run(f"{title}.scrollWidth <= {title}.clientWidth"), "the title is not cut off"
    tab.close()
