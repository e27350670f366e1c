"""Images that are dropped on the page: classified in the browser, from disk, as torch classifies them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.chromium import Browser, Tab
from support.page import on_screen, text, texts

from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.page.builder import build_page
from tembed.trained.predicting import predict

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab(chromium: Browser, analysis: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Tab:
    """The page with its network."""
    page = build_page(analysis, tmp_path_factory.mktemp("network") / "page", network=True)
    tab = chromium.open(page.as_uri() + "#tab=drop", reduced_motion="reduce")
    tab.wait("tembed.page")
    tab.send("DOM.enable")
    return tab


def message(tab: Tab, path: Path) -> str:
    """What the page says about a file, once it has looked at it."""
    tab.run("document.querySelector('#panel-drop .message').textContent = ''")
    tab.choose("#panel-drop .file", path)
    tab.wait("document.querySelector('#panel-drop .message').textContent.match(/[.:]/)")
    return text(tab, "#panel-drop .message")


def test_the_browser_computes_what_torch_computes(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    pixels, trained = analysis.images[7], analysis.trained
    path = tmp_path / "<img src=x onerror=alert(4)>.png"
    Image.fromarray(pixels).save(path)
    tab.choose("#panel-drop .file", path)
    tab.wait("document.querySelector('#panel-drop .answer')")
    tab.rest()
    assert tab.problems == []
    assert tab.dialogs == []
    assert any(request.endswith("network/model.js") for request in tab.requests)
    assert [r for r in tab.requests if not r.startswith(("file:", "data:", "blob:"))] == []
    features = analysis.features
    head = torch.from_numpy(features.logits[7]).softmax(0)
    best = int(head.argmax())
    assert text(tab, "#panel-drop .answer") == f"{analysis.classes[best]}, {100 * head[best]:.0f} %"
    bars = [float(number) for number in texts(tab, "#panel-drop .bar .number")]
    np.testing.assert_allclose(bars, head, atol=0.0051)
    shares = np.array(tab.run("tembed.page.panels.get('drop').cells.map((one) => one.shares)"))
    assert features.softmax is not None
    np.testing.assert_allclose(shares, features.softmax[7 * 16 : 8 * 16], atol=1e-4)
    # the image is one of the test images, so each of its patches lands on the patch itself
    near = tab.run("tembed.page.panels.get('drop').cells.map((one) => one.near[0].distance)")
    scale = np.linalg.norm(features.embedding, axis=1).mean()  # type: ignore[arg-type]
    assert max(near) < 1e-3 * scale
    assert trained.model.training is False


def test_patches_land_at_the_mean_of_their_five_nearest(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (24, 16, 3), np.uint8)  # higher than wide: the middle counts
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    tab.choose("#panel-drop .file", tmp_path / "noise.png")
    tab.wait("(document.querySelector('#panel-drop .result h3') || {}).textContent === 'noise.png'")
    tab.rest()
    trained = analysis.trained
    mean, std = (torch.tensor(triple).view(3, 1, 1) for triple in (trained.mean, trained.std))
    middle = torch.from_numpy(pixels[4:20]).permute(2, 0, 1) / 255
    with torch.no_grad():
        trace = trained.model.trace(((middle - mean) / std)[None])
    assert trace.embedding is not None
    vectors = trace.embedding[0].flatten(1).T.numpy()
    known, places = analysis.features.embedding, np.array(tab.run("[...tembed.page.map.layout]")).reshape(-1, 2) / 65535
    landed = tab.run("tembed.page.panels.get('drop').cells.map((one) => one.place())")
    for vector, place in zip(vectors, landed, strict=True):
        far = np.linalg.norm(known - vector, axis=1)
        five = np.argsort(far)[:5]
        expected = (places[five] / far[five, None]).sum(0) / (1 / far[five]).sum()
        np.testing.assert_allclose(place, expected, atol=2e-3)
    middle_of = "(b => [b.left + b.width / 2, b.top + b.height / 2])"
    shown = tab.run(f"{middle_of}(document.querySelector('.dropped[data-cell=\"5\"]').getBoundingClientRect())")
    x, y = on_screen(tab, 0)
    x0, y0 = places[0]
    scale = tab.run("tembed.page.map.camera.scale")
    assert shown == pytest.approx([x + (landed[5][0] - x0) * scale, y + (landed[5][1] - y0) * scale], abs=1.5)
    tab.run("document.querySelector('#panel-drop .result .link').click()")
    assert tab.run("document.querySelectorAll('.dropped').length") == 0


def test_a_translucent_picture_lies_on_white(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    clear = np.dstack([analysis.images[3], np.full(analysis.images[3].shape[:2], 64, np.uint8)])
    Image.fromarray(clear, "RGBA").save(tmp_path / "clear.png")
    tab.choose("#panel-drop .file", tmp_path / "clear.png")
    tab.wait("(document.querySelector('#panel-drop .result h3') || {}).textContent === 'clear.png'")
    (expected,) = predict(analysis.trained.model, [tmp_path / "clear.png"])
    bars = [float(number) for number in texts(tab, "#panel-drop .bar .number")]
    np.testing.assert_allclose(bars, expected.probabilities, atol=0.03)  # the browser rounds premultiplied colours


def test_what_is_no_picture_gets_a_sentence(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(5)'/>")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    Image.new("L", (10_000, 10_000)).save(tmp_path / "huge.png")
    assert "not an image" in message(tab, tmp_path / "notes.txt")
    assert "SVG" in message(tab, tmp_path / "drawing.svg")
    assert "cannot read" in message(tab, tmp_path / "broken.png")
    assert "100 megapixels" in message(tab, tmp_path / "huge.png")
    assert tab.problems == []
    assert tab.dialogs == []


def test_of_two_images_dropped_at_once_only_the_second_is_shown(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    """The first is still being computed when the second arrives."""
    for name, image in (("first.png", 1), ("second.png", 2)):
        Image.fromarray(analysis.images[image]).save(tmp_path / name)
        tab.choose("#panel-drop .file", tmp_path / name)
    tab.wait("(document.querySelector('#panel-drop .result h3') || {}).textContent === 'second.png'")
    tab.rest()
    assert text(tab, "#panel-drop .result h3") == "second.png"
    assert tab.run("document.querySelectorAll('.dropped').length") == 16
    tab.run("document.querySelector('#panel-drop .result .link').click()")
    assert tab.run("document.querySelectorAll('.dropped').length") == 0
    tab.choose("#panel-drop .file", tmp_path / "second.png")  # the same file once more
    tab.wait("(document.querySelector('#panel-drop .result h3') || {}).textContent === 'second.png'")


def test_a_dropped_file_is_taken_from_anywhere_on_the_page(tab: Tab) -> None:
    tab.run(
        "(() => { const data = new DataTransfer(); data.items.add(new File(['x'], 'a.txt', { type: 'text/plain' }));"
        "document.querySelector('#stage').dispatchEvent(new DragEvent('drop',"
        "{ dataTransfer: data, bubbles: true, cancelable: true })) })()"
    )
    tab.wait("/not an image/.test(document.querySelector('#panel-drop .message').textContent)")


def test_a_missing_network_file_is_explained(chromium: Browser, tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    source = Path(tab.run("decodeURIComponent(location.pathname)")).parent
    shutil.copytree(source, tmp_path / "page")
    (tmp_path / "page" / "network" / "wasm.js").unlink()
    Image.fromarray(analysis.images[0]).save(tmp_path / "image.png")
    other = chromium.open((tmp_path / "page" / "index.html").as_uri() + "#tab=drop")
    other.wait("tembed.page")
    other.send("DOM.enable")
    other.choose("#panel-drop .file", tmp_path / "image.png")
    other.wait("/wasm.js is missing/.test(document.querySelector('#panel-drop .message').textContent)")
    other.close()


def test_without_a_network_the_page_says_how_to_get_it(chromium: Browser, folder: Path) -> None:
    tab = chromium.open((folder / "index.html").as_uri() + "#tab=drop")
    tab.wait("tembed.page")
    assert "tembed[onnx]" in text(tab, "#panel-drop .message")
    tab.close()
