"""The pure parts of the page's scripts, run in the browser and compared with numpy or with worked examples."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from support.chromium import Tab

from tembed.lab.analysis.analyzing import Analysis
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


def test_labels_never_cover_each_other(tab: Tab) -> None:
    sets = [[{"x": float(x), "y": float(y), "width": 60} for x, y in RNG.random((12, 2)) * 90] for _ in range(200)]
    for labels, tops in zip(sets, tab.run(f"{json.dumps(sets)}.map((labels) => tembed.apart(labels))"), strict=True):
        assert tops[0] == labels[0]["y"]
        for a, b in itertools.combinations(range(12), 2):
            assert tops[a] >= labels[a]["y"]
            assert abs(tops[a] - tops[b]) > 20.99 or abs(labels[a]["x"] - labels[b]["x"]) >= 60


def test_labels_of_vectors_that_overlap_are_joined(tab: Tab) -> None:
    points = [{"x": 0, "y": 0}, {"x": 100, "y": 0}, {"x": 5, "y": -5}, {"x": 100, "y": 19}]
    assert call(tab, "tembed.together", points) == [[0, 2], [1, 3]]
    assert call(tab, "tembed.vectorText", ["plane"]) == "plane"
    assert call(tab, "tembed.vectorText", ["plane", "0"]) == "plane, 0"
    assert call(tab, "tembed.vectorText", ["plane", "bird", "car"]) == "3 class vectors"
    assert call(tab, "tembed.vectorText", ["plane", "bird", "car", "0"]) == "3 class vectors and 0"


def test_dark_class_colours_are_lighter_on_dark_paper(tab: Tab) -> None:
    navy, yellow = [32, 32, 80, 7], [240, 230, 60, 9]
    frames = f"new Uint8Array({navy + yellow})"
    assert tab.run(f"[...tembed.visible({frames}, [1, 1, 1])]") == navy + yellow
    found = tab.run(f"[...tembed.visible({frames}, [0.06, 0.07, 0.09])]")
    assert np.dot(found[:3], [0.21, 0.72, 0.07]) == pytest.approx(0.35 * 255, abs=1)
    assert found[2] > found[0], "still blue"
    assert found[3:] == [7, *yellow], "bright colours and entropies stay"


def test_a_picture_is_cropped_padded_or_stretched_to_the_input(tab: Tab) -> None:
    assert call(tab, "tembed.placed", 400, 200, 32, 32, "crop") == [-16, 0, 64, 32]
    assert call(tab, "tembed.placed", 200, 400, 32, 32, "crop") == [0, -16, 32, 64]
    assert call(tab, "tembed.placed", 100, 100, 40, 20, "crop") == [0, -10, 40, 40]
    assert call(tab, "tembed.placed", 400, 200, 32, 32, "pad") == [0, 8, 32, 16]
    assert call(tab, "tembed.placed", 400, 200, 32, 32, "stretch") == [0, 0, 32, 32]


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
