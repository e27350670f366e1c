"""What the tests of the page look at: pixels, texts, patches and their places."""

import io
import json

import numpy as np
from PIL import Image

from support.chromium import Tab
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.page.content import unit_square

STAGE = (440, 430)
"""The middle of the map in a window of 1200 x 800 pixels."""


def pixels(tab: Tab) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(tab.screenshot())).convert("RGB")).astype(int)


def text(tab: Tab, selector: str) -> str:
    return tab.run(f"document.querySelector({json.dumps(selector)}).textContent")


def texts(tab: Tab, selector: str) -> list[str]:
    return tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")


def patches(tab: Tab, selector: str) -> list[int]:
    found = f"document.querySelectorAll({json.dumps(selector + ' [data-patch]')})"
    return tab.run(f"[...{found}].map((one) => Number(one.dataset.patch))")


def press(tab: Tab, selector: str) -> None:
    tab.run(f"document.querySelector({json.dumps(selector)}).click()")
    tab.rest()


def shown(tab: Tab) -> list[int]:
    """The patches that pass the filters."""
    return tab.run("[...tembed.page.map.mask.keys()].filter((p) => tembed.page.map.mask[p])")


def on_screen(tab: Tab, patch: int) -> tuple[float, float]:
    """Where a patch is in the window, from the page's camera and the analysis's map."""
    x, y = tab.run(
        "(() => { const m = tembed.page.map, b = m.stage.getBoundingClientRect();"
        f"const [x, y] = tembed.camera.toScreen(m.camera, m, ...m.place({patch})); return [x + b.left, y + b.top] }})()"
    )
    return x, y


def show_alone(tab: Tab, patch: int) -> None:
    """Fly to a patch whose picture is 64 pixels wide, with nothing above it."""
    tab.run(
        f"(() => {{ const {{ map }} = tembed.page, mask = new Uint8Array(map.patches.count); mask[{patch}] = 1;"
        f"map.setMask(mask); map.fly({patch}, 30); document.querySelector('#overlay').hidden = true }})()"
    )
    tab.rest()


def lone_patch(analysis: Analysis) -> int:
    """The patch that is farthest from all others on the map of embedding vectors."""
    places = unit_square(analysis.sprite_maps["embedding vectors"]).astype(float)[:640]
    gaps = np.abs(places[:, None] - places).max(2) + 1e9 * np.eye(640)
    return int(gaps.min(1).argmax())
