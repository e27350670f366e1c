"""The contact sheet shows every class."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tembed.common.errors import TembedError
from tembed.lab.data import contact_sheets as sheet
from tembed.lab.data.contact_sheets import TILE, _colours, contact_sheet
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import store


@pytest.mark.parametrize("classes", [1, 3, 30])
def test_every_class_has_its_images_on_the_sheet(
    root: Path, tmp_path: Path, make: SimpleNamespace, classes: int
) -> None:
    """Each class has its own colour, and the sheet has four tiles of each."""
    files = {}
    colours = np.random.default_rng(0).permutation(200)[:classes]
    for colour in colours:
        pixels = np.full((8, 8, 3), (colour, 255 - colour, 7), np.uint8)
        files |= {f"class {colour}/{k}.png": make.png(pixels) for k in range(4)}
    import_images(make.folder(tmp_path / "p", files), "p")
    contact_sheet("p", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as image:
        seen = np.asarray(image).reshape(-1, 3)
    for colour in colours:
        assert (seen == (colour, 255 - colour, 7)).all(1).sum() == 4 * TILE**2


def test_known_parts_are_shown_beside_the_image_and_named_below(root: Path, make: SimpleNamespace) -> None:
    """Two images: the left half of each is part 1, the right half part 2."""
    part_map = np.repeat([[[1] * 4 + [2] * 4]], 8, axis=1).repeat(2, axis=0).astype(np.uint8)
    chunks = iter([Chunk(make.random_images(2), np.zeros(2, np.int64), np.zeros(2, np.uint8))])
    store(root, "p", Reading("made", ("car",), chunks), {}, part_map, ("wheel", "door"))
    seen = np.asarray(contact_sheet("p")).reshape(-1, 3)
    for colour in _colours(2)[1:]:
        assert (seen == colour).all(1).sum() == 2 * TILE**2 // 2 + 15 * 15


def test_a_thousand_classes_fit_on_a_sheet_that_can_be_opened(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    image = make.png(make.random_images(1)[0])
    import_images(make.folder(tmp_path / "p", {f"class {k:03}/1.png": image for k in range(1000)}), "p")
    made = contact_sheet("p")
    assert made.width < 3500
    assert made.height < 9000


def test_a_number_of_classes_that_eight_does_not_divide_needs_no_ninth_column(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    image = make.png(make.random_images(1)[0])
    for count in (203, 208):
        folder = make.folder(tmp_path / str(count), {f"class {k:03}/1.png": image for k in range(count)})
        import_images(folder, f"of{count}")
    assert contact_sheet("of203").size == contact_sheet("of208").size


def test_long_and_foreign_class_names_fit(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    image = make.png(make.random_images(1)[0])
    import_images(make.folder(tmp_path / "p", {f"{'long ' * 30}/1.png": image, "犬/1.png": image}), "p")
    assert contact_sheet("p").width < 1200


@pytest.mark.parametrize("classes", [3, 60])
def test_a_name_that_fits_is_written_in_full(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, classes: int
) -> None:
    """Up to 30 characters on a sheet of one column, and up to 16 on others, where columns are narrower."""
    start = "miniature poodle (brown) nr. " if classes == 3 else "class number "
    names = [f"{start}{k}" for k in range(classes)]
    image = make.png(make.random_images(1)[0])
    import_images(make.folder(tmp_path / "p", {f"{name}/1.png": image for name in names}), "p")
    drawn: list[str] = []
    monkeypatch.setattr(sheet, "draw_text", lambda draw, at, text, *rest, **more: drawn.append(text))
    contact_sheet("p")
    assert set(names) <= set(drawn)


def test_a_sheet_that_cannot_be_written_gives_one_line(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 4})), "p")
    with pytest.raises(TembedError, match=r"cannot write .*nowhere/sheet\.png .*its folder is gone"):
        contact_sheet("p", tmp_path / "nowhere" / "sheet.png")
