"""One page of a small world with hostile names, in one browser for all tests of this folder."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.chromium import Browser, Tab, running
from support.features import save_untrained
from support.quick import QUICK

from tembed.lab.analysis import maps
from tembed.lab.analysis.analyzing import Analysis, analyze
from tembed.lab.data.parts.world import generate
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import store
from tembed.lab.page.builder import build_page

HOSTILE = "<script>alert(1)</script>"
CLASSES = (HOSTILE, 'a"b', "car & truck", "</div>", "it's", "fünf", "six", "seven", "eight", "nine")
SIDE = 16


@pytest.fixture(scope="session")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """640 patches of 40 images: an untrained network, whose maps and words are as good as any for a page."""
    folder = tmp_path_factory.mktemp("page")
    made = generate(200, size=SIDE)
    assert made.part_map is not None
    images, labels = made.pixels(), made.labels.numpy()
    reading = Reading("generated", CLASSES, iter([Chunk(images, labels, np.zeros(len(labels), np.uint8))]))
    parts = (f"<img src=x onerror=alert(2)>{made.parts[0]}", *made.parts[1:])
    store(folder / "data", "hostile", reading, {}, made.part_map.numpy(), parts)
    weights = folder / "<img src=x onerror=alert(3)>.safetensors"
    save_untrained(weights, "rn26-embed", "hostile", CLASSES, SIDE)
    save_untrained(folder / "baseline.safetensors", "rn26", "hostile", CLASSES, SIDE)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setattr(name, value)
        patch.setattr(maps, "EARLY", 20)  # a map that is spread out
        patch.setattr(maps, "LATE", 20)
        patch.setattr("tembed.lab.analysis.analyzing.WORDS", 20)
        found = analyze(weights, baseline=folder / "baseline.safetensors", images_per_class=4, root=folder / "data")
        assert len(found.geometry_maps | found.sprite_maps) == 5  # computes and keeps the maps
        assert len(found.words.sizes) == 20
        assert found.effective_field.n == 6
    return found


@pytest.fixture(scope="session")
def supervised(analysis: Analysis) -> Analysis:
    """The same as if the network had deep supervision only: no class vectors."""
    bare = dataclasses.replace(analysis.features, mixing=None, embedding=None, values=None)
    made = dataclasses.replace(analysis, given={**analysis.given, "run": [bare]})
    known = {name: getattr(analysis, name) for name in ("geometry_maps", "words", "images", "effective_field")}
    made.__dict__.update(known | {"sprite_maps": {"predictions": analysis.sprite_maps["predictions"]}})
    return made


@pytest.fixture(scope="session")
def folder(analysis: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page; its name needs escaping in an address."""
    return build_page(analysis, tmp_path_factory.mktemp("built") / "my page #1", network=False).parent


@pytest.fixture(scope="session")
def chromium(browser: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that has seen a page from disk before."""
    with running(browser, tmp_path_factory.mktemp("profile")) as started:
        tab = started.open((folder / "index.html").as_uri())
        tab.wait("tembed.page")
        assert tab.run("document.querySelector('#help').open"), "it explains itself on the first visit"
        tab.run("document.querySelector('#help').close()")
        tab.wait("localStorage.length")
        tab.close()
        yield started


@pytest.fixture(scope="module")
def opened(chromium: Browser, folder: Path) -> Iterator[Tab]:
    """The page at desktop size, without animations."""
    tab = chromium.open((folder / "index.html").as_uri(), reduced_motion="reduce")
    tab.wait("tembed.page")
    yield tab
    tab.close()


@pytest.fixture
def tab(opened: Tab) -> Tab:
    """The page in its first state."""
    opened.send("Page.bringToFront")  # a tab in the background is not drawn
    opened.mouse("Moved", 1100, 790)
    opened.run("location.hash = ''; tembed.page.restore(); tembed.page.hover(null); 0")
    opened.run("document.querySelector('#overlay').hidden = false")
    opened.rest()
    return opened
