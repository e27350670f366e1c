"""Every published form of CIFAR gives the same pool."""

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tembed.common.errors import TembedError
from tembed.lab.data.catalogue import CIFAR10, CIFAR100, super_classes
from tembed.lab.data.getting import get
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load
from tembed.lab.data.subsets import CODES

Pin = Callable[[str, Path], str]


@pytest.mark.parametrize("packed", ["folder", "zip", "tar"])
@pytest.mark.parametrize("form", ["pickles", "binary", "pngs", "folders"])
def test_every_form_of_cifar10_is_the_same_pool(
    root: Path, tmp_path: Path, make: SimpleNamespace, pin: Pin, form: str, packed: str
) -> None:
    sha256 = pin("cifar10", make.folder(tmp_path / "first", make.cifar10_files("pickles")))
    path = getattr(make, packed)(tmp_path / "copy", make.cifar10_files(form))
    assert import_images(path, "cifar10").sha256 == sha256


@pytest.mark.parametrize("form", ["pickles", "binary", "pngs"])
def test_images_beside_a_published_layout_are_counted(
    root: Path, tmp_path: Path, make: SimpleNamespace, form: str
) -> None:
    image = make.png(make.random_images(1)[0])
    files = make.cifar10_files(form) | {"mine/cat/1.png": image, "mine/cat/2.jpg": image, ".owl/1.png": image}
    notes = import_images(make.folder(tmp_path / "copy", files), "mine").manifest["notes"]
    assert notes[0] == "skipped 1 image whose name or folder is hidden: .owl/1.png"
    assert notes[1].startswith("skipped 2 images that are no part of CIFAR-10")
    assert len(notes) == 2


def test_both_forms_of_cifar100_are_the_same_pool(root: Path, tmp_path: Path, make: SimpleNamespace, pin: Pin) -> None:
    sha256 = pin("cifar100", make.folder(tmp_path / "first", make.cifar100_files("pickles")))
    stored = import_images(make.tar(tmp_path / "b.tgz", make.cifar100_files("binary"), "w:gz"), "cifar100")
    assert stored.sha256 == sha256
    assert stored.manifest["class_counts"] == [6] * 100


def test_pixels_labels_and_origin_belong_together(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    """Under another name the order of the files is kept, so images can be compared one by one."""
    files = make.cifar10_files("pickles")
    stored = import_images(make.folder(tmp_path / "c", files), "mine")
    last = pickle.loads(files["cifar-10-batches-py/test_batch"])
    assert (stored.images[50:] == last[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)).all()
    assert stored.labels[50:].tolist() == last[b"labels"]
    assert stored.subsets.tolist() == [CODES["train"]] * 50 + [CODES["test"]] * 10
    assert stored.classes == CIFAR10.classes


def test_the_official_split_is_the_published_one(root: Path, tmp_path: Path, make: SimpleNamespace, pin: Pin) -> None:
    files = make.cifar10_files("pngs", each=2)
    pin("cifar10", make.folder(tmp_path / "c", files))
    get("cifar10", copy=tmp_path / "c")
    splits = load("cifar10", split="official")
    test = pickle.loads(make.cifar10_files("pickles", each=2)["cifar-10-batches-py/test_batch"])
    published = {row.tobytes() for row in test[b"data"]}
    assert {image.transpose(2, 0, 1).tobytes() for image in splits.test.pixels()} == published
    assert [len(subset) for subset in (splits.train, splits.val, splits.test)] == [90, 10, 20]


def test_other_pixels_may_not_be_called_cifar10(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    path = make.folder(tmp_path / "c", make.cifar10_files("pickles"))
    with pytest.raises(TembedError, match=r"c is not the published cifar10: 60 images.*under another name"):
        import_images(path, "cifar10")
    with pytest.raises(TembedError, match=r"2 classes .* not those of CIFAR-10"):
        import_images(make.folder(tmp_path / "p", make.class_folders({"a": 1, "b": 1})), "cifar10")
    assert not (root / "cifar10").exists()


@pytest.mark.parametrize("form", ["pickles", "binary", "pngs"])
def test_a_missing_batch_is_named(root: Path, tmp_path: Path, make: SimpleNamespace, form: str) -> None:
    files = {name: data for name, data in make.cifar10_files(form).items() if "data_batch_4" not in name}
    with pytest.raises(TembedError, match=r"data_batch_4.* is missing: fetch a complete copy of CIFAR-10"):
        import_images(make.zip(tmp_path / "c.zip", files), "mine")


def test_missing_labels_are_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.cifar10_files("pngs")
    del files["package/test_lables.json"]
    with pytest.raises(TembedError, match=r"test_lables\.json is missing"):
        import_images(make.zip(tmp_path / "c.zip", files), "mine")


def change(pickled: bytes, **changes: object) -> bytes:
    return pickle.dumps(pickle.loads(pickled) | {key.encode(): value for key, value in changes.items()}, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": [0] * 9}, "10 images but 9 labels"),
        ({"labels": [10] * 10}, "the label 10; 10 classes allow 0 to 9"),
        ({"labels": [-1] * 10}, "the label -1"),
        ({"labels": ["a"] * 10}, "labels is not a list of labels"),
        ({"labels": [1 << 70] * 10}, "a number of more than 64 bits"),
        ({"data": np.zeros((10, 3071), np.uint8)}, "not an array of 3072 bytes"),
        ({"data": np.zeros((10, 3072), np.int32)}, "not an array of 3072 bytes"),
        ({"data": "pixels"}, "not an array of 3072 bytes"),
    ],
)
def test_a_damaged_batch_is_named(
    root: Path, tmp_path: Path, make: SimpleNamespace, changes: dict[str, object], said: str
) -> None:
    files = make.cifar10_files("pickles")
    name = "cifar-10-batches-py/data_batch_2"
    files[name] = change(files[name], **changes)
    with pytest.raises(TembedError, match=f"data_batch_2.*{said}"):
        import_images(make.folder(tmp_path / "c", files), "mine")


def test_a_truncated_binary_file_is_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.cifar10_files("binary")
    files["cifar-10-batches-bin/test_batch.bin"] = files["cifar-10-batches-bin/test_batch.bin"][:-5]
    with pytest.raises(TembedError, match=r"test_batch\.bin has 30725 bytes, not a multiple of 3073: it is cut off"):
        import_images(make.folder(tmp_path / "c", files), "mine")


def test_a_malicious_batch_is_refused_and_not_run(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.cifar10_files("pickles")
    files["cifar-10-batches-py/data_batch_3"] = b"cos\nmkdir\n(X\x03\x00\x00\x00ranntR."
    with pytest.raises(TembedError, match=r"data_batch_3 is a pickle that contains os.mkdir"):
        import_images(make.folder(tmp_path / "c", files), "mine")
    assert not (tmp_path / "ran").exists()


def test_super_classes_cover_every_class_once() -> None:
    for name, known, count in (("cifar10", CIFAR10, 2), ("cifar100", CIFAR100, 20)):
        groups = super_classes(name)
        assert len(groups) == count
        assert sorted(member for group in groups.values() for member in group) == sorted(known.classes)
    assert {len(group) for group in super_classes("cifar100").values()} == {5}


def test_a_dataset_without_super_classes_names_those_that_have_some() -> None:
    with pytest.raises(TembedError, match=r"'mini-imagenet' has no super-classes.*cifar10, cifar100, parts"):
        super_classes("mini-imagenet")
