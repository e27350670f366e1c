"""The pure parts of the page's scripts, run in the browser and compared with numpy or with worked examples."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.chromium import Tab

from tembed.common.arrays import Fit
from tembed.images.image_files import fitted
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.colours import class_colours
from tembed.lab.analysis.figures import mixture

pytestmark = pytest.mark.browser
RNG = np.random.default_rng(1)
SIZE = {"width": 800, "height": 600}


def call(tab: Tab, function: str, *arguments: Any) -> Any:
    return tab.run(f"{function}({', '.join(map(json.dumps, arguments))})")


def test_nearest_patches_are_those_of_a_plain_loop(tab: Tab) -> None:
    weights, basis = RNG.integers(0, 9, (60, 4)), RNG.normal(size=(4, 3)).astype(np.float32)
    weights[RNG.random(weights.shape) < 0.5] = 0
    point = RNG.random(4)
    distance = np.linalg.norm((0.25 * weights - point) @ basis, axis=1)
    arrays = f"new Uint16Array({weights.ravel().tolist()}), 0.25, 4, new Float32Array({basis.ravel().tolist()})"
    metric = f"new tembed.Metric({arrays})"
    found = tab.run(f"(() => {{ const m = {metric}; return m.nearest(m.of({point.tolist()}), 7) }})()")
    np.testing.assert_allclose([one["distance"] for one in found], np.sort(distance)[:7], rtol=1e-4)
    np.testing.assert_allclose(distance[[one["patch"] for one in found]], np.sort(distance)[:7], rtol=1e-4)

    image = "(p) => Math.floor(p / 6)"
    found = tab.run(f"(() => {{ const m = {metric}; return m.nearest(m.of({point.tolist()}), 5, {image}, 3) }})()")
    best = np.delete(distance.reshape(10, 6).min(1), 3)
    np.testing.assert_allclose([one["distance"] for one in found], np.sort(best)[:5], rtol=1e-4)


def test_without_a_basis_distances_are_those_of_the_weights(tab: Tab) -> None:
    weights = RNG.integers(0, 1000, (30, 5))
    metric = f"new tembed.Metric(new Uint16Array({weights.ravel().tolist()}), 0.001, 5, null)"
    found = tab.run(f"(() => {{ const m = {metric}; return m.nearest(m.at(4), 3) }})()")
    expected = np.sort(np.linalg.norm(0.001 * (weights - weights[4]), axis=1))[:3]
    np.testing.assert_allclose([one["distance"] for one in found], expected, rtol=1e-4, atol=1e-6)


def test_a_new_patch_lands_at_the_inverse_distance_mean(tab: Tab) -> None:
    places, distances = RNG.random((5, 2)), RNG.random(5) + 0.1
    near = [{"patch": k, "distance": d} for k, d in enumerate(distances.tolist())]
    found = tab.run(f"tembed.landing({json.dumps(near)}, (p) => {places.tolist()}[p])")
    expected = (places / distances[:, None]).sum(0) / (1 / distances).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    near[2]["distance"] = 0.0
    assert tab.run(f"tembed.landing({json.dumps(near)}, (p) => {places.tolist()}[p])") == places[2].tolist()


def test_zooming_keeps_the_place_under_the_pointer(tab: Tab) -> None:
    camera = {"x": 0.4, "y": 0.6, "scale": 900}
    before = call(tab, "tembed.camera.toMap.bind(tembed.camera)", camera, SIZE, 100, 500)
    zoomed = call(tab, "tembed.camera.zoom.bind(tembed.camera)", camera, SIZE, 100, 500, 1.7)
    assert zoomed["scale"] == pytest.approx(900 * 1.7)
    assert call(tab, "tembed.camera.toMap.bind(tembed.camera)", zoomed, SIZE, 100, 500) == pytest.approx(before)
    assert call(tab, "tembed.camera.toScreen.bind(tembed.camera)", camera, SIZE, *before) == pytest.approx([100, 500])


def test_zooming_ends_at_half_of_the_whole_map_and_at_96_times_it(tab: Tab) -> None:
    for factor, whole in ((1e-9, 0.5), (1e9, 96)):
        zoomed = call(
            tab, "tembed.camera.zoom.bind(tembed.camera)", {"x": 0.5, "y": 0.5, "scale": 900}, SIZE, 9, 9, factor
        )
        assert zoomed["scale"] == pytest.approx(whole * 0.92 * 600)


def test_a_patch_is_outlined_in_its_image_and_the_rest_is_dimmed(tab: Tab) -> None:
    """A grey image of 16 pixels, drawn 160 pixels wide; the patch is from pixel 4 to 12."""
    row = tab.run("""(() => {
      const grey = new OffscreenCanvas(16, 16).getContext("2d");
      grey.fillStyle = "rgb(200,200,200)";
      grey.fillRect(0, 0, 16, 16);
      const patches = { about: { size: [16, 16], atlas: { columns: 1, tile: [16, 16] }, evidence: {} }, image: () => 0,
        box: () => ({ left: 4, top: 4, right: 12, bottom: 12 }) };
      const canvas = document.createElement("canvas");
      new tembed.Pictures(patches, grey.canvas).source(canvas, 0, 160);
      const row = canvas.getContext("2d").getImageData(0, 80, 160, 1).data;
      return [37, 38, 39, 40, 41, 42, 117, 118, 119, 120, 121, 122].map((x) => row[4 * x]);
    })()""")
    left = [110, 110, 255, 255, 200, 200]
    assert row == pytest.approx(left + left[::-1], abs=5)


def test_the_ends_of_the_range_of_entropies_belong_to_it(tab: Tab) -> None:
    state = "{ ...tembed.page.store.state, labels: [], heads: [], entropy: [0.25, 0.75] }"
    patches = "{ arrays: { entropy: [0, 24, 25, 26, 74, 75, 76, 100] }, about: { fine: 100 }, count: 8 }"
    assert tab.run(f"[...tembed.passing({patches}, {state})]") == [0, 0, 1, 1, 1, 1, 0, 0]


def test_a_flight_starts_and_ends_where_it_should(tab: Tab) -> None:
    start, end = {"x": 0.1, "y": 0.2, "scale": 500}, {"x": 0.9, "y": 0.3, "scale": 8000}
    path = [call(tab, "tembed.camera.between.bind(tembed.camera)", start, end, t) for t in (0, 0.5, 1)]
    assert path[0] == pytest.approx(start)
    assert path[2] == pytest.approx(end)
    assert path[1]["scale"] == pytest.approx(2000)  # the geometric mean
    assert path[1]["x"] > 0.5, "most of the way is done while the view is wide"
    level = call(tab, "tembed.camera.between.bind(tembed.camera)", start, end | {"scale": 500}, 0.25)
    assert level == pytest.approx({"x": 0.3, "y": 0.225, "scale": 500})


def test_pictures_fade_in_between_6_and_12_pixels(tab: Tab) -> None:
    shares = [call(tab, "tembed.camera.pictures", side) for side in (3, 6, 9, 12, 40)]
    assert shares == [0, 0, 0.5, 1, 1]


def test_a_mixture_reads_as_in_the_figures(tab: Tab, analysis: Analysis) -> None:
    for p in (*analysis.features.softmax[:20], np.full(10, 0.05), np.eye(10)[3]):  # type: ignore[index]
        found = call(tab, "tembed.mixtureText", np.round(p.astype(float), 6).tolist(), list(analysis.classes))
        assert found == mixture(np.round(p.astype(float), 6), analysis.classes)


def test_a_tally_counts_what_passes(tab: Tab) -> None:
    values, mask = RNG.integers(0, 4, 50), RNG.integers(0, 2, 50)
    found = dict(call(tab, "tembed.tally", values.tolist(), mask.tolist()))
    assert found == {k: n for k, n in enumerate(np.bincount(values[mask == 1])) if n}


def test_the_address_holds_the_state(tab: Tab) -> None:
    state = {"layout": 2, "camera": {"x": 0.25, "y": 0.75, "zoom": 6.5}, "patch": 17, "marks": False, "labels": [0, 3]}
    state |= {"heads": [9], "answer": "wrong", "entropy": [0.1, 0.9], "word": 4, "part": 2, "tab": "mix"}
    state |= {"region": {"box": [0.1, 0.2, 0.3, 0.4], "layout": 1}, "mix": {"1": 0.5, "4": 0.25}, "theme": "dark"}
    address = tab.run(f"tembed.writeAddress({json.dumps(state)}, tembed.about)")
    assert tab.run(f"tembed.readAddress({json.dumps(address)}, tembed.about)") == state
    assert tab.run("tembed.writeAddress(tembed.initial(tembed.about), tembed.about)") == "#"


@pytest.mark.parametrize(
    "address",
    [
        *("#patch=640", "#patch=-1", "#patch=1e3", "#camera=NaN,0,1", "#camera=1,2", "#layout=nothing", "#word=20"),
        *("#entropy=0.9,0.1", "#labels=10,x", "#__proto__=1", "#constructor=1", "#mix=0:2,99:1", "#part=0", "#%"),
    ],
)
def test_a_bad_address_changes_nothing(tab: Tab, address: str) -> None:
    initial = tab.run("tembed.initial(tembed.about)")
    assert tab.run(f"tembed.readAddress({json.dumps(address)}, tembed.about)") == initial


def test_names_are_shown_in_their_order_where_nothing_is_covered(tab: Tab) -> None:
    for _ in range(20):
        corner, size = RNG.random((12, 2)) * 90, RNG.random((12, 2)) * 40
        boxes = np.concatenate([corner, corner + size], 1)
        named = [dict(zip(("left", "top", "right", "bottom"), box, strict=True)) for box in boxes.tolist()]
        pairs = [named[k : k + 2] for k in range(2, 12, 2)]
        found, placed = call(tab, "tembed.free", pairs, named[:2]), list(boxes[:2])
        for pair, shown in zip(pairs, found, strict=True):
            free = []
            for one in pair:
                box = np.array(list(one.values()))
                apart = [(box[2:] <= other[:2]).any() or (other[2:] <= box[:2]).any() for other in placed]
                free += [one] if all(apart) else []
            assert shown == (free[0] if free else None)
            placed += [np.array(list(shown.values()))] if shown else []


def test_vectors_that_overlap_stand_side_by_side_near_their_places(tab: Tab) -> None:
    points = [(0, 0), (100, 0), (5, -5), (100, 19)]
    found = call(tab, "tembed.sideBySide", [{"x": x, "y": y} for x, y in points], 20)
    assert [(one["x"], one["y"]) for one in found] == [(0, 0), (100, 0), (25, -5), (120, 19)]
    found = call(tab, "tembed.sideBySide", [{"x": 0, "y": 0}] * 30, 20)
    assert found[25:] == [None] * 5, "no room near them"
    places = np.array([(one["x"], one["y"]) for one in found[:25]])
    assert np.abs(places).max() == 40
    assert len(np.unique(places, axis=0)) == 25


@pytest.mark.parametrize("count", [10, 100])
def test_class_colours_can_be_told_from_dark_paper(tab: Tab, count: int) -> None:
    """A contrast of 3 to 1 (WCAG 2.2, 1.4.11), by the standard's own formula."""
    colours, dark = class_colours(count), (15, 18, 23)

    def contrast(colour: Sequence[int]) -> float:
        shares = np.array([colour, dark]) / 255
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        high, low = linear @ [0.2126, 0.7152, 0.0722] + 0.05
        return float(high / low)

    assert min(map(contrast, colours)) < 1.5, "as they are, some are nearly as dark as the paper"
    found = call(tab, "tembed.onPaper", colours, dark)
    assert min(map(contrast, found)) >= 3
    for before, after in zip(colours, found, strict=True):
        assert tuple(after) == before or contrast(before) < 3, "colours that can be told from it stay"
        assert np.argmax(after) == np.argmax(before), "still the same hue"
    assert call(tab, "tembed.onPaper", colours, [255, 255, 255]) == [list(colour) for colour in colours]


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("size", [(41, 67), (67, 41), (9, 5), (600, 300), (16, 16)])
def test_a_photo_is_resized_as_on_the_command_line(tab: Tab, size: tuple[int, int], fit: Fit) -> None:
    """Against Pillow, which may do the columns of a high photo before its rows and so rounds other sums: on noise, at
    most a few steps of 255 apart, and nearly always equal.
    """
    photo = RNG.integers(0, 256, (*size, 4), np.uint8) | np.array([0, 0, 0, 255], np.uint8)
    shown = base64.b64encode(photo.tobytes()).decode()
    found = tab.run(
        f"(async () => {{ const bytes = new Uint8ClampedArray(tembed.bytes.fromBase64('{shown}'));"
        f"const photo = await createImageBitmap(new ImageData(bytes, {size[1]}, {size[0]}));"
        f"const {{ canvas }} = tembed.fitted(photo, 16, 16, '{fit}');"
        "return [...canvas.getContext('2d').getImageData(0, 0, 16, 16).data] })()"
    )
    expected = np.asarray(fitted(Image.fromarray(photo[..., :3]), 16, fit)).astype(int)
    difference = np.abs(np.reshape(found, (16, 16, 4))[..., :3] - expected)
    assert difference.max() <= (4 if size[0] > size[1] else 1)
    assert difference.mean() < 0.25


def test_a_heat_map_has_its_values_at_the_centres_of_the_patches(tab: Tab) -> None:
    values, rows, columns = RNG.random((3, 2)), [0.2, 0.5, 0.9], [0.25, 0.7]
    image = f"tembed.heat({values.ravel().tolist()}, {rows}, {columns}, 50, 40)"
    opacity = np.reshape(tab.run(f"[...{image}.data]"), (50, 40, 4))[..., 3] / 255
    y, x = (np.arange(50) + 0.5) / 50, (np.arange(40) + 0.5) / 40
    across = np.stack([np.interp(x, columns, row) for row in values])
    expected = np.stack([np.interp(y, rows, column) for column in across.T], 1)
    np.testing.assert_allclose(opacity, 0.25 + 0.5 * expected, atol=0.003)
    (red, green, blue, _) = tab.run("[...tembed.heat([1], [0.5], [0.5], 1, 1).data]")
    assert (red, green, blue) == (252, 255, 164), "the end of inferno"


def test_pixels_become_planes_and_scores_shares(tab: Tab) -> None:
    pixels = RNG.integers(0, 256, (2, 3, 4))
    found = tab.run(f"Array.from(tembed.planes({pixels.ravel().tolist()}, 2, 3))")
    np.testing.assert_allclose(found, (pixels[..., :3] / 255).transpose(2, 0, 1).ravel(), atol=1e-6)
    scores = RNG.normal(size=6) * 300
    powers = np.exp(scores - scores.max())
    np.testing.assert_allclose(call(tab, "tembed.softmax", scores.tolist()), powers / powers.sum(), atol=1e-12)


def test_density_is_the_sum_of_smooth_weights(tab: Tab) -> None:
    """Against a dense computation: every texel asks every patch for its B-spline weight."""
    count, width, height = 40, 60, 44
    places = RNG.integers(0, 65536, (count, 4))
    states, frames = RNG.integers(0, 3, count), RNG.integers(0, 256, (count, 4))
    view = {
        "camera": {"x": 0.4, "y": 0.6, "scale": 50},
        "width": width,
        "height": height,
        "moved": 0.25,
        "ink": [0.2, 0.4, 1],
    }
    arrays = f"new Uint16Array({places.ravel().tolist()}), {states.tolist()}, new Uint8Array({frames.ravel().tolist()})"
    found = tab.run(
        f"(() => {{ const d = tembed.density({arrays}, {count}, {json.dumps(view)});"
        "return { ...d, bytes: [...d.bytes] } })()"
    )
    assert (found["width"], found["height"]) == (30, 22)

    def spline(distance: np.ndarray) -> np.ndarray:
        far = np.abs(distance)
        return np.where(far < 0.5, 0.75 - far**2, np.where(far < 1.5, 0.5 * (1.5 - far) ** 2, 0))

    x = ((0.75 * places[:, 0] + 0.25 * places[:, 2]) / 65535 - 0.4) * 25 + 15
    y = ((0.75 * places[:, 1] + 0.25 * places[:, 3]) / 65535 - 0.6) * 25 + 11
    inside = (np.floor(x) >= 1) & (np.floor(y) >= 1) & (np.floor(x) <= 28) & (np.floor(y) <= 20)
    assert 10 < inside.sum() < count, "some patches are outside"
    weight = np.where(states == 0, 0.05, 0.55) * inside
    colour = np.where((states == 0)[:, None], 255 * np.array([0.2, 0.4, 1.0]), frames[:, :3])
    share = weight * spline(np.arange(22)[:, None, None] + 0.5 - y) * spline(np.arange(30)[:, None] + 0.5 - x)
    total = share.sum(2)
    opacity = np.where(total >= 1e-3, 1 - np.exp(-3 * total), 0)
    mean = share @ colour / np.maximum(total, 1e-9)[..., None]
    expected = np.concatenate([mean * opacity[..., None], 255 * opacity[..., None]], 2)
    np.testing.assert_allclose(np.reshape(found["bytes"], (22, 30, 4)), expected, atol=2)
