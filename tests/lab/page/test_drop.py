"""Images that are dropped on the page: classified in the browser, from disk, as torch classifies them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.chromium import Browser, Tab
from support.page import on_screen, press, text, texts

from tembed.common.errors import TembedError
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.data.parts.world import generate
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


HEAD = "tembed.page.panels.get('drop').head"
"""The class probabilities of the head for the dropped image."""


def drop(tab: Tab, path: Path) -> None:
    tab.choose("#panel-drop .file", path)
    tab.wait(f"(document.querySelector('#panel-drop .result h2') || {{}}).textContent === {json.dumps(path.name)}")
    tab.rest()


def photo(height: int, width: int) -> Image.Image:
    """A scene of the parts world, enlarged and with the noise of a camera."""
    scene = Image.fromarray(generate(1, size=64, seed=5).pixels()[0]).resize((width, height), Image.Resampling.BICUBIC)
    noise = np.random.default_rng(2).normal(0, 6, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(scene) + noise, 0, 255).astype(np.uint8))


def message(tab: Tab, path: Path) -> str:
    """What the page says about a file, once it has looked at it."""
    tab.run("document.querySelector('#panel-drop .message').textContent = ''")
    tab.choose("#panel-drop .file", path)
    tab.wait("document.querySelector('#panel-drop .message').textContent.match(/[.:]/)")
    return text(tab, "#panel-drop .message")


def test_the_browser_computes_what_torch_computes(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    pixels, network = analysis.images[7], analysis.network
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
    assert (
        text(tab, "#panel-drop .answer.head span:last-child") == f"{analysis.classes[best]}, {100 * head[best]:.0f} %"
    )
    numbers = np.reshape([float(number) for number in texts(tab, "#panel-drop .bar .number")], (10, 2))
    np.testing.assert_allclose(numbers[:, 0], head, atol=0.0051)
    shares = np.array(tab.run("tembed.page.panels.get('drop').cells.map((one) => one.shares)"))
    assert features.softmax is not None
    np.testing.assert_allclose(shares, features.softmax[7 * 16 : 8 * 16], atol=1e-4)
    patches = features.softmax[7 * 16 : 8 * 16].mean(0)
    np.testing.assert_allclose(numbers[:, 1], patches, atol=0.0051)
    most = int(patches.argmax())
    assert (
        text(tab, "#panel-drop .answer.patches span:last-child")
        == f"{analysis.classes[most]}, {100 * patches[most]:.0f} %"
    )
    assert text(tab, "#panel-drop .result .evidence") == f"{analysis.view.caption}.", "how much of it the windows show"
    # the image is one of the test images, so each of its patches lands on the patch itself
    near = tab.run("tembed.page.panels.get('drop').cells.map((one) => one.near[0].distance)")
    scale = np.linalg.norm(features.embedding, axis=1).mean()  # type: ignore[arg-type]
    assert max(near) < 1e-3 * scale
    assert network.training is False


def test_patches_land_at_the_mean_of_their_five_nearest(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (24, 16, 3), np.uint8)  # higher than wide: the middle counts
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    drop(tab, tmp_path / "noise.png")
    network = analysis.network
    mean, std = (torch.tensor(triple).view(3, 1, 1) for triple in (network.description.mean, network.description.std))
    middle = torch.from_numpy(pixels[4:20]).permute(2, 0, 1) / 255
    with torch.no_grad():
        trace = network.trace(((middle - mean) / std)[None])
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
    drop(tab, tmp_path / "clear.png")
    (expected,) = predict(analysis.network, [tmp_path / "clear.png"])
    np.testing.assert_allclose(tab.run(HEAD), expected.probabilities, atol=0.01)  # it rounds premultiplied colours


@pytest.mark.parametrize("name", ["large.jpg", "turned.jpg", "grey.webp", "few.gif", "profile.png"])
def test_page_and_command_line_agree_on_a_photo(tab: Tab, analysis: Analysis, tmp_path: Path, name: str) -> None:
    """Within 1 %: formats, a photo that the camera turned, and one whose colour profile both ignore."""
    picture, options = photo(*((450, 700) if name == "large.jpg" else (300, 200))), {}
    if name == "turned.jpg":
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = 6
    if name == "profile.png":
        from PIL import ImageCms

        lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ"))
        options["icc_profile"] = lab.tobytes()
    picture = picture.convert("L") if name == "grey.webp" else picture
    picture.save(tmp_path / name, **options)
    (expected,) = predict(analysis.network, [tmp_path / name])
    drop(tab, tmp_path / name)
    np.testing.assert_allclose(tab.run(HEAD), expected.probabilities, atol=0.01)


def test_a_photo_is_shown_whole_with_a_heat_map_of_any_class(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    """Grey, twice as wide as high: its middle is covered by the colours of the patches' shares of the class."""
    Image.new("RGB", (200, 100), (128, 128, 128)).save(tmp_path / "wide.png")
    drop(tab, tmp_path / "wide.png")
    shares = np.array(tab.run("tembed.page.panels.get('drop').cells.map((one) => one.shares)"))
    row = (
        "(c => [...c.getContext('2d').getImageData(0, 1, c.width, 1).data].filter((_, k) => k % 4 === 2))"
        "(document.querySelector('.photo canvas'))"
    )
    assert tab.run("(c => [c.width, c.height])(document.querySelector('.photo canvas'))") == [280, 140]
    pictures = []
    for k in (int(shares[0].argmax()), int(shares[0].argmin())):
        press(tab, f"#panel-drop .bar[data-class='{k}']")
        seen = np.array(tab.run(row))
        faded = 0.45 * 128 + 0.55 * 255
        np.testing.assert_allclose(seen[:68], faded, atol=2, err_msg="what the network does not see")
        np.testing.assert_allclose(seen[-68:], faded, atol=2)
        pictures.append(seen[72])
    # blue of inferno between 0 and 1, over grey
    steps = np.linspace(0, 1, 8)
    for k, blue in zip((shares[0].argmax(), shares[0].argmin()), pictures, strict=True):
        share = shares[0][k]
        opacity = 0.25 + 0.5 * share
        colour = np.interp(share, steps, [4, 84, 110, 99, 66, 21, 39, 164])
        assert blue == pytest.approx((1 - opacity) * 128 + opacity * colour, abs=3)
    tab.run("document.querySelector('.grid [data-cell=\"6\"]').focus()")
    assert text(tab, "#panel-drop .mixture") == tab.run(
        "tembed.page.patches.mixture(tembed.page.panels.get('drop').cells[6].shares)"
    )
    left, wide = tab.run(
        "(() => { const g = document.querySelector('.grid').getBoundingClientRect(),"
        "p = document.querySelector('.photo').getBoundingClientRect();"
        "return [(g.left - p.left) / p.width, g.width / p.width] })()"
    )
    assert (left, wide) == pytest.approx((0.25, 0.5), abs=0.01)


@pytest.mark.parametrize("name", ["cut.jpg", "stages.jpg", "cut.png", "cut.webp", "cut.gif"])
def test_a_truncated_photo_is_refused_here_and_there(tab: Tab, analysis: Analysis, tmp_path: Path, name: str) -> None:
    photo(120, 160).save(tmp_path / name, **({"progressive": True} if name == "stages.jpg" else {}))
    whole = (tmp_path / name).read_bytes()
    assert tab.run(f"tembed.truncated(new Uint8Array({list(whole)}))") is False
    for share in (0.3, 0.6, 0.95):
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        assert re.search("The end of this image is missing|cannot read the image", message(tab, tmp_path / name))
        with pytest.raises(TembedError, match=r"[Tt]runcated|cannot|broken"):
            predict(analysis.network, [tmp_path / name])


def test_what_is_no_picture_gets_a_sentence(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(5)'/>")
    (tmp_path / "broken.bmp").write_bytes(b"BM broken")
    Image.new("L", (10_000, 10_000)).save(tmp_path / "huge.png")
    assert "not an image" in message(tab, tmp_path / "notes.txt")
    assert "SVG" in message(tab, tmp_path / "drawing.svg")
    assert "cannot read" in message(tab, tmp_path / "broken.bmp")
    assert "100 megapixels" in message(tab, tmp_path / "huge.png")
    assert tab.problems == []
    assert tab.dialogs == []


def test_of_two_images_dropped_at_once_only_the_second_is_shown(tab: Tab, analysis: Analysis, tmp_path: Path) -> None:
    """The first is still being computed when the second arrives."""
    for name, image in (("first.png", 1), ("second.png", 2)):
        Image.fromarray(analysis.images[image]).save(tmp_path / name)
        tab.choose("#panel-drop .file", tmp_path / name)
    tab.wait("(document.querySelector('#panel-drop .result h2') || {}).textContent === 'second.png'")
    tab.rest()
    assert text(tab, "#panel-drop .result h2") == "second.png"
    assert tab.run("document.querySelectorAll('.dropped').length") == 16
    tab.run("document.querySelector('#panel-drop .result .link').click()")
    assert tab.run("document.querySelectorAll('.dropped').length") == 0
    drop(tab, tmp_path / "second.png")


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
    said = "This page was built without the network: build it again with tembed explore."
    assert text(tab, "#panel-drop .message") == said
    tab.close()
