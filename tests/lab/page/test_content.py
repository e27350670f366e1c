"""What the page is given: compared with the analysis itself, by loops and closed forms."""

import base64
import dataclasses
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.effective_fields import EffectiveField, WindowShare
from tembed.lab.analysis.features import PADDING
from tembed.lab.page.atlas import make_atlas
from tembed.lab.page.content import FINE, gram_basis, kept_images, page_content, unit_square
from tembed.lab.page.encoding import array_script, json_text

RNG = np.random.default_rng(0)


def test_the_basis_gives_the_distances_between_embedding_vectors() -> None:
    for classes, width in ((10, 128), (30, 12)):
        values = RNG.normal(size=(classes, width)).astype(np.float32)
        p, q = RNG.random((2, classes))
        basis = gram_basis(values)
        assert basis.shape == (classes, min(classes, width))
        assert np.linalg.norm((p - q) @ basis) == pytest.approx(np.linalg.norm((p - q) @ values), rel=1e-5)


def test_every_array_is_the_analysis_in_fixed_steps(analysis: Analysis) -> None:
    found, features = page_content(analysis), analysis.features
    assert features.softmax is not None
    assert features.mixing is not None
    arrays, about = found.arrays, found.about
    np.testing.assert_allclose(arrays["softmax"] / about["shares"], features.softmax, atol=0.5 / about["shares"] + 1e-6)
    step = about["metric"]["step"]
    np.testing.assert_allclose(arrays["mixing"] * step, features.mixing, atol=0.51 * step)
    assert about["metric"]["strength"] == pytest.approx(np.median(features.mixing.sum(1)))
    p = features.softmax.astype(np.float64)
    h = -(p * np.log(np.where(p > 0, p, 1))).sum(1) / np.log(10)
    np.testing.assert_allclose(arrays["entropy"] / FINE, h, atol=1e-4)
    np.testing.assert_array_equal(arrays["heads"], features.logits.argmax(1))
    np.testing.assert_array_equal(arrays["words"], analysis.words.word_of)
    assert [layout["name"] for layout in about["layouts"]] == [
        *("baseline", "block input", "block output", "predictions", "embedding vectors")
    ]
    assert [layout["vectors"] for layout in about["layouts"]] == [False] * 4 + [True]
    assert len(arrays["layout embedding vectors"]) == 640 + 11


def test_the_spans_cut_the_same_pictures_as_the_analysis(analysis: Analysis) -> None:
    about, features = page_content(analysis).about, analysis.features
    for point in (0, 5, 15, 327, 639):
        image, row, column = features.position(point)
        (top, bottom), (left, right) = about["rows"][row], about["columns"][column]
        padded = np.pad(analysis.images[image], ((16, 16), (16, 16), (0, 0)), constant_values=PADDING)
        expected = padded[top + 16 : bottom + 16, left + 16 : right + 16]
        np.testing.assert_array_equal(features.picture(analysis.images, point), expected)


def test_the_window_of_half_the_evidence_is_shown_on_demand(analysis: Analysis) -> None:
    windows = (WindowShare((8, 8), 0, 0.4, 0.3, 0.5, 0.0), WindowShare((12, 12), 2, 0.7, 0.6, 0.8, 0.0))
    found = dataclasses.replace(analysis, window="effective")
    known = {name: getattr(analysis, name) for name in ("geometry_maps", "sprite_maps", "words", "images")}
    found.__dict__.update(known | {"effective_field": EffectiveField((8, 8), (19, 19), windows, 2, 3, 3, "")})
    about, nominal = page_content(found).about, page_content(analysis).about
    assert about["rows"] == [[top - 2, bottom + 2] for top, bottom in nominal["rows"]]
    assert about["columns"] == [[left - 2, right + 2] for left, right in nominal["columns"]]
    assert about["evidence"]["caption"] == "12 px shown; 70% of the score comes from here"
    assert about["evidence"]["caption"] in {text.get_text() for text in found.chosen_words().texts}
    assert about["evidence"]["caption"] in {text.get_text() for text in found.legend().texts}


def test_the_leading_part_is_the_one_with_the_most_pixels(analysis: Analysis) -> None:
    content, part_map = page_content(analysis), analysis.sample.part_map
    assert part_map is not None
    for point in range(0, 640, 37):
        image, row, column = analysis.features.position(point)
        (top, bottom), (left, right) = content.about["rows"][row], content.about["columns"][column]
        seen = part_map[image, max(0, top) : bottom, max(0, left) : right].flatten().tolist()
        counts = {part: seen.count(part) for part in set(seen) - {0}}
        most = max(counts.values(), default=0)
        expected = {part for part, count in counts.items() if count == most} if most >= 8 else {0}
        assert int(content.arrays["parts"][point]) in expected


def test_coordinates_keep_their_shape() -> None:
    square = unit_square(np.array([[-1, 0], [3, 1], [1, 0.5]], np.float32))
    # the longer side fills the range, the shorter one is centred
    assert square.tolist() == [[0, round(FINE * 0.375)], [FINE, round(FINE * 0.625)], [32768, 32768]]


def test_too_many_patches_are_thinned_by_images_of_every_class(analysis: Analysis) -> None:
    content = page_content(analysis, most=20 * 16 + 3)
    assert (content.about["images"], content.about["allImages"]) == (20, 40)
    assert np.bincount(content.arrays["labels"]).tolist() == [2] * 10
    assert len(content.arrays["words"]) == 320
    kept = kept_images(analysis.features.labels, 10, 20)
    np.testing.assert_array_equal(content.images, analysis.images[kept])
    points = np.concatenate([np.arange(16) + 16 * image for image in kept])
    np.testing.assert_array_equal(content.arrays["words"], analysis.words.word_of[points])
    assert sum(content.about["words"]["sizes"]) == 320
    assert max(content.about["words"]["points"]) < 320


def test_images_are_named_by_their_files(analysis: Analysis) -> None:
    names = [f"class/{number}.png" for number in range(200)]
    named = dataclasses.replace(analysis, sample=dataclasses.replace(analysis.sample, pool_files=lambda: names))
    known = ("geometry_maps", "sprite_maps", "words", "images", "effective_field")
    named.__dict__.update({name: getattr(analysis, name) for name in known})
    assert "files" not in page_content(analysis).about
    kept = kept_images(analysis.features.labels, 10, 20)
    files = page_content(named, most=20 * 16).about["files"]
    assert files == [names[analysis.sample.indices[image]] for image in kept]


def test_fewer_images_than_classes_still_give_a_page() -> None:
    assert kept_images(np.repeat(np.arange(10), 4), 10, 3).tolist() == [0, 4, 8]


@pytest.mark.parametrize(("count", "height", "width"), [(7, 4, 4), (10, 6, 3), (1, 5, 5)])
def test_every_image_is_in_the_atlas(count: int, height: int, width: int) -> None:
    from io import BytesIO

    from PIL import Image

    images = RNG.integers(0, 256, (count, height, width, 3), np.uint8)
    atlas = make_atlas(images)
    sheet = np.asarray(Image.open(BytesIO(atlas.content)))
    assert sheet.shape[:2] == atlas.size
    for number, image in enumerate(images):
        row, column = divmod(number, atlas.columns)
        found = sheet[row * height : (row + 1) * height, column * width : (column + 1) * width]
        np.testing.assert_array_equal(found, image)


def test_a_large_atlas_shrinks_to_the_limit() -> None:
    atlas = make_atlas(RNG.integers(0, 256, (30, 40, 60, 3), np.uint8), largest=128)
    assert max(atlas.size) <= 128
    assert atlas.tile == (atlas.size[0] // -(-30 // atlas.columns), atlas.size[1] // atlas.columns)


def test_scripts_hold_the_bytes_and_no_markup(folder: Path) -> None:
    array = np.arange(6, dtype=np.uint16).reshape(2, 3)
    name, kind, shape, text = json.loads(f"[{array_script('</script>', array)[len('tembed.store(') : -3]}]")
    assert (name, kind, shape) == ("</script>", "uint16", [2, 3])
    assert gzip.decompress(base64.b64decode(text)) == array.astype("<u2").tobytes()
    assert "<" not in json_text({"<script>": ["</script>", "\u2028"]})
    for path in folder.rglob("data/*.js"):
        assert "<" not in path.read_text("utf-8")


def test_the_page_names_its_own_files_only(folder: Path) -> None:
    text = (folder / "index.html").read_text("utf-8")
    named = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert {name for name in named if not (folder / name).is_file()} == {"data:,"}
    scripts = {path.relative_to(folder).as_posix() for path in folder.rglob("*.js")}
    assert {name for name in scripts if not name.startswith("network/")} <= set(named)
    assert "module" not in text


def test_without_class_vectors_neighbours_come_from_the_predictions(supervised: Analysis) -> None:
    content = page_content(supervised)
    assert content.about["metric"]["space"] == "predictions"
    assert not {"mixing", "basis"} & set(content.arrays)
    assert not any(layout["vectors"] for layout in content.about["layouts"])
