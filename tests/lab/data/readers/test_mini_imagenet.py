"""Mini-ImageNet as images with three CSVs and as cached pickles, pooled over its few-shot subsets."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images


@pytest.mark.parametrize("packed", ["folder", "zip", "tar"])
@pytest.mark.parametrize("prefix", ["", "mini-imagenet/"])
def test_images_with_csvs_are_pooled(
    root: Path, tmp_path: Path, make: SimpleNamespace, packed: str, prefix: str
) -> None:
    files = {prefix + name: data for name, data in make.mini_csvs(classes=6, each=4).items()}
    stored = import_images(getattr(make, packed)(tmp_path / "mini", files), "mini")
    assert stored.classes == tuple(f"n{label:08}" for label in range(6))
    assert (stored.images == np.concatenate([make.random_images(4, 8, label) for label in range(6)])).all()
    assert stored.labels.tolist() == np.repeat(np.arange(6), 4).tolist()
    assert not stored.subsets.any()  # the published subsets have different classes, so they are not a split


def test_rows_without_files_are_counted_and_the_first_is_named(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.mini_csvs()
    del files["images/n0000000100000002.png"], files["images/n0000000200000000.png"]
    path = make.zip(tmp_path / "mini.zip", files)
    with pytest.raises(
        TembedError, match=r"val\.csv line 4: images/n0000000100000002\.png does not exist \(2 such rows\)"
    ):
        import_images(path, "mini")
    stored = import_images(path, "mini", skip_broken=True)
    assert stored.manifest["count"] == 10
    assert len(stored.manifest["left_out"]) == 2


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (b"name,class\nx,y\n", "line 2: needs the columns filename and label"),
        (b"filename,label\nn0000000100000000.png,\n", "line 2: needs the columns"),
        (b"filename,label\n" + b"n0000000100000000.png,a\n" * 2, "line 3 names n0000000100000000.png again"),
        (b'filename,label\nn0000000100000000.png,"a\nb"\n', "line 2: has control characters"),
        (b"\xff\xfe\x00", "is not a readable CSV"),
        (b'filename,label\n"open', "is not a readable CSV"),
        (b"filename,label\n../../etc/passwd,a\n", r"val.csv line 2: images/../../etc/passwd does not exist"),
    ],
)
def test_a_damaged_csv_is_named(root: Path, tmp_path: Path, make: SimpleNamespace, table: bytes, said: str) -> None:
    path = make.folder(tmp_path / "mini", make.mini_csvs() | {"val.csv": table})
    with pytest.raises(TembedError, match=said):
        import_images(path, "mini")


def test_a_missing_csv_is_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.mini_csvs()
    del files["val.csv"]
    with pytest.raises(TembedError, match=r"val\.csv is missing; this layout needs train\.csv, val\.csv"):
        import_images(make.folder(tmp_path / "mini", files), "mini")


def test_csvs_beside_class_folders_are_not_mini_imagenet(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders({"cat": 4, "dog": 4}) | {"train.csv": b"id,x\n", "test.csv": b"id\n"}
    assert import_images(make.folder(tmp_path / "pets", files), "pets").classes == ("cat", "dog")


@pytest.mark.parametrize("packed", ["folder", "zip"])
@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_cached_pickles_are_pooled(
    root: Path, tmp_path: Path, make: SimpleNamespace, packed: str, protocol: int
) -> None:
    path = getattr(make, packed)(tmp_path / "caches", make.mini_caches(protocol=protocol))
    stored = import_images(path, "mini")
    assert (stored.images == np.concatenate([make.random_images(8, 8, subset) for subset in range(3)])).all()
    assert stored.manifest["class_counts"] == [4] * 6


@pytest.mark.parametrize("options", [{"size": 16}, {"fit": "pad"}])
def test_arrays_of_pixels_are_not_resized(
    root: Path, tmp_path: Path, make: SimpleNamespace, options: dict[str, Any]
) -> None:
    for name, files in (("mini", make.mini_caches()), ("cifar", make.cifar10_files("binary"))):
        folder, size = make.folder(tmp_path / name, files), {"mini": 84, "cifar": 32}[name]
        with pytest.raises(TembedError, match=f"squares of {size}x{size} pixels, so `size` and `fit` do not apply"):
            import_images(folder, name, **options)
    assert import_images(folder, name, size=size).images.shape[1:3] == (32, 32)


def test_one_cached_pickle_alone_is_read(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "caches", make.mini_caches())
    stored = import_images(folder / "mini-imagenet-cache-val.pkl", "val")
    assert stored.classes == ("n00000002", "n00000003")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"class_dict": {"a": [0, 99]}}, r"class_dict\['a'\] has 99, which is not an image"),
        ({"class_dict": {"a": [0, 0]}}, r"class_dict\['a'\] has 0, which is not an image or is already taken"),
        ({"class_dict": {"a": "xy"}}, "is not a list of image numbers"),
        ({"class_dict": {"a": [False, True]}}, "is not a list of image numbers"),
        ({"class_dict": {"a": [0, 1 << 20_000]}}, "a number of more than 64 bits"),
        ({"class_dict": None}, "lacks image_data or class_dict"),
        ({"image_data": np.zeros((8, 8, 8), np.uint8)}, r"expected uint8 \(N, H, W, 3\)"),
        ({"image_data": np.zeros((8, 8, 9, 3), np.uint8)}, "9x8 are not square"),
        ({"image_data": np.zeros((8, 4, 4, 3), np.uint8)}, "another image size"),
        ({"image_data": {1: print}}, "is a pickle that contains builtins.print"),
    ],
)
def test_a_damaged_cache_is_named(
    root: Path, tmp_path: Path, make: SimpleNamespace, changes: dict[str, Any], said: str
) -> None:
    files = make.mini_caches()
    name = "mini-imagenet-cache-val.pkl"
    files[name] = pickle.dumps(pickle.loads(files[name]) | changes)
    with pytest.raises(TembedError, match=said):
        import_images(make.folder(tmp_path / "caches", files), "mini")


def test_a_flipped_bit_in_a_zipped_cache_is_noticed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.mini_caches()
    path = make.zip(tmp_path / "caches.zip", files)
    data = bytearray(path.read_bytes())
    data[data.index(files["mini-imagenet-cache-val.pkl"]) + 500] ^= 1  # a pixel
    path.write_bytes(data)
    with pytest.raises(TembedError, match=r"cache-val\.pkl.*CRC"):
        import_images(path, "mini")


def test_images_of_a_cache_that_no_class_names_are_counted(root: Path, tmp_path: Path) -> None:
    cache = {"image_data": np.zeros((9, 4, 4, 3), np.uint8), "class_dict": {"a": [0, 1, 2, 3], "b": [5, 6, 7, 8]}}
    path = tmp_path / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(cache))
    assert import_images(path, "mini").manifest["notes"] == ["skipped 1 of 9 images, which no class names"]
