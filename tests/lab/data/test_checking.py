"""``check`` finds changed bytes and images that occur twice."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data.checking import check
from tembed.lab.data.importing import import_images


def test_duplicates_are_counted_within_and_across_classes_and_splits(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    """Forty cats and forty dogs per subset; one cat has two copies among the cats and one among the dogs."""
    files = make.class_folders({"cat": 40, "dog": 40}, top=("train/", "test/"))
    files["train/cat/x.png"] = files["train/cat/y.png"] = files["train/dog/z.png"] = files["train/cat/000.png"]
    files["test/dog/w.png"] = files["train/dog/000.png"]
    stored = import_images(make.folder(tmp_path / "pets", files), "pets")
    result = check("pets")
    assert (result.count, result.groups, result.extra, result.across_classes) == (164, 2, 4, 1)
    assert result.across_splits["official"][0] >= 1
    assert result.across_splits["official"][1] == 1  # the dog of the test set
    assert result.sha256 == stored.sha256
    cats, dogs = sorted(result.duplicates, key=lambda group: -len(group.indices))
    assert cats.names == ("train/cat/000.png", "train/cat/x.png", "train/cat/y.png", "train/dog/z.png")
    assert "classes" in cats.across
    assert dogs.names == ("test/dog/w.png", "train/dog/000.png") or dogs.names == (
        "train/dog/000.png",
        "test/dog/w.png",
    )
    assert "the official split" in dogs.across
    assert "classes" not in dogs.across
    assert (cats.same_file, dogs.same_file) == (True, True)
    for group in (cats, dogs):
        assert (stored.images[list(group.indices)] == stored.images[group.indices[0]]).all()


def test_duplicates_tell_equal_pixels_from_equal_files_and_have_numbers_without_names(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.class_folders({"cat": 9, "dog": 9})
    out = io.BytesIO()
    Image.open(io.BytesIO(files["cat/000.png"])).save(out, "BMP")
    files["dog/copy.bmp"] = out.getvalue()
    stored = import_images(make.folder(tmp_path / "pets", files), "pets")
    (group,) = check("pets").duplicates
    assert group.same_file is False
    assert str(group).startswith("cat/000.png = dog/copy.bmp (across classes")
    assert str(group).endswith("; the files differ)")
    manifest = json.loads((stored.folder / "manifest.json").read_text())
    del manifest["file_list"]
    (stored.folder / "manifest.json").write_text(json.dumps(manifest))
    (group,) = check("pets").duplicates
    assert str(group).startswith("image 0 (cat) = image 18 (dog) (across classes")


def test_only_test_images_count_as_also_in_train_or_val(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders({"cat": 9, "dog": 9}, top=("train/", "val/", "test/"))
    files["test/cat/x.png"] = files["train/cat/000.png"]
    files["val/dog/x.png"] = files["val/dog/y.png"] = files["train/dog/000.png"]
    import_images(make.folder(tmp_path / "pets", files), "pets")
    assert check("pets").across_splits["official"] == (2, 1)


def test_no_duplicates_are_reported_if_there_are_none(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    import_images(make.folder(tmp_path / "pets", make.class_folders({"cat": 9, "dog": 9})), "pets")
    result = check("pets")
    assert (result.groups, result.extra, result.across_splits) == (0, 0, {"paper": (0, 0)})


def test_a_changed_pixel_is_noticed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    stored = import_images(make.folder(tmp_path / "pets", make.class_folders({"cat": 9})), "pets")
    path = stored.folder / "images.npy"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(TembedError, match=r"images\.npy has changed since it was stored.*again"):
        check("pets")


def test_changed_class_names_are_noticed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    stored = import_images(make.folder(tmp_path / "pets", make.class_folders({"cat": 9})), "pets")
    manifest = stored.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"cat"', '"cow"'))
    with pytest.raises(TembedError, match=r"manifest\.json has changed"):
        check("pets")


def test_a_class_too_small_to_split_is_reported_and_the_rest_is_checked(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    lines = []

    class Listening(Progress):
        def say(self, line: str) -> None:
            lines.append(line)

    folder = make.folder(tmp_path / "pets", make.class_folders({"cat": 9, "dog": 2}))
    import_images(folder, "pets", progress=Listening())
    assert lines == [
        "note: class 'dog' has 2 images, too few to split into train, validation and test: give it at least 4, or "
        "leave the class out"
    ]
    result = check("pets", progress=Listening())
    assert (result.count, result.across_splits) == (11, {})
    assert "class 'dog' has 2 images, too few to split" in lines[1]
