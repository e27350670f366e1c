"""``load`` turns a name into train, validation and test subsets."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets import store_world

from tembed.common.errors import TembedError
from tembed.lab.data import npy
from tembed.lab.data.batches import training_batches
from tembed.lab.data.image_set import statistics
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load
from tembed.lab.data.subsets import SUBSETS


@pytest.fixture
def pets(root: Path, tmp_path: Path, make: SimpleNamespace) -> np.ndarray:
    """The stored pool of 20 cats and 20 dogs."""
    return import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 20, "dog": 20})), "pets").images


def test_every_image_arrives_once_with_its_label(pets: np.ndarray) -> None:
    splits = load("pets")
    assert [len(subset) for subset in (splits.train, splits.val, splits.test)] == [26, 6, 8]
    for subset in (splits.train, splits.val, splits.test):
        assert subset.pixels().dtype == np.uint8
        assert subset.labels.dtype == torch.int64
        assert (subset.pixels() == pets[subset.indices.numpy()]).all()
        assert (subset.labels.numpy() == (subset.indices.numpy() >= 20)).all()
        assert subset.classes == ("cat", "dog")
        assert subset.size == (8, 8)


def test_mean_and_deviation_are_those_of_the_training_images_only(pets: np.ndarray) -> None:
    splits = load("pets", seed=3)
    pixels = splits.train.pixels() / 255
    assert splits.mean == pytest.approx(pixels.mean((0, 1, 2)).tolist(), rel=1e-12)
    assert splits.std == pytest.approx(pixels.std((0, 1, 2)).tolist(), rel=1e-12)
    assert statistics(dataclasses.replace(splits.train, pool_sums=None)) == (splits.mean, splits.std), "to the bit"


def test_the_record_is_enough_to_split_the_same_way_again(pets: np.ndarray) -> None:
    splits = load("pets", seed=3)
    again = load(splits.name, splits.split, splits.seed)  # type: ignore[arg-type]
    assert again.sha256 == splits.sha256
    assert torch.equal(again.test.indices, splits.test.indices)
    assert not torch.equal(load("pets", seed=4).test.indices, splits.test.indices)


def test_changing_pixels_does_not_change_the_store(pets: np.ndarray) -> None:
    train = load("pets").train
    for changed in (train.pixels(), train.pixels([0, 3]), train.pixels(slice(4))):
        changed.fill(0)
    assert train.pixels([0]).any()
    assert (load("pets").train.pixels() == pets[train.indices.numpy()]).all()


def test_subsets_share_the_images_on_disk(pets: np.ndarray) -> None:
    splits = load("pets")
    some = splits.train.subset(torch.tensor([4, 0])).subset(torch.tensor([1]))
    for subset in (splits.train, splits.val, splits.test, some):
        assert isinstance(subset.pool, np.memmap)
        assert subset.pool is splits.train.pool
    assert (some.pixels() == splits.train.pixels([0])).all()
    assert (splits.train.pixels([2, -1]) == splits.train.pixels()[[2, -1]]).all()
    assert [splits.subset(name) for name in SUBSETS] == [splits.train, splits.val, splits.test]


def test_reading_a_large_pool_does_not_keep_it_in_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "RESIDENT", 10_000_000)
    store_world(root, "world", 4000, 32)
    splits = load("world")
    for start in range(0, len(splits.test), 10):
        splits.test.pixels(slice(start, start + 10))
    assert splits.mean
    options: dict[str, Any] = {"mean": splits.mean, "std": splits.std}
    in_memory = dataclasses.replace(splits.train, pool=np.array(splits.train.pool))
    mapped, copied = (training_batches(images, 32, **options) for images in (splits.train, in_memory))
    assert all(torch.equal(mapped.batch(1, step)[0], copied.batch(1, step)[0]) for step in range(len(mapped)))
    assert mapped_kilobytes(root / "world" / "images.npy") < 4000 * 3 / 10, "a tenth of the pool"


def mapped_kilobytes(path: Path) -> int:
    """How much of a file is in the memory of this process, in kB."""
    lines = iter(Path("/proc/self/smaps").read_text("utf-8").splitlines())
    sizes = [next(line for line in lines if line.startswith("Rss:")) for line in lines if line.endswith(str(path))]
    return sum(int(line.split()[1]) for line in sizes)


def test_a_class_with_too_few_images_is_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 20, "dog": 3})), "pets")
    with pytest.raises(TembedError, match="class 'dog' has 3 images, too few to split"):
        load("pets")


def test_a_missing_dataset_gives_the_command_that_fetches_it(pets: np.ndarray) -> None:
    with pytest.raises(TembedError, match=r"'cifar10' is not in .*: run `tembed data get cifar10`"):
        load("cifar10")
    with pytest.raises(TembedError, match="stored there: pets; add your own images with `tembed data import"):
        load("birds")
    with pytest.raises(TembedError, match=r"'pest' is not in .*: did you mean 'pets'\?"):
        load("pest")
    with pytest.raises(TembedError, match=r"did you mean 'cifar100'\?"):
        load("cifar-100")


def test_an_unknown_split_is_refused_with_the_known_ones(pets: np.ndarray) -> None:
    with pytest.raises(TembedError, match="`split` is 'papre'; it must be 'paper' or 'official'"):
        load("pets", split="papre")  # type: ignore[arg-type]


@pytest.mark.process
def test_the_library_works_without_rich_and_tyro(pets: np.ndarray) -> None:
    code = """
import sys
from collections.abc import Callable
sys.modules["rich"] = sys.modules["tyro"] = None
from tembed.lab import data
data.check("pets")
data.contact_sheet("pets")
assert len(data.load("pets").train) == 26
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_each_image_keeps_the_name_of_its_file(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders({"cat": 20, "dög": 20})
    import_images(make.folder(tmp_path / "p", files), "pets")
    splits = load("pets")
    some = splits.train.subset(torch.tensor([5, 0, -1]))
    masked = splits.train.subset(splits.train.labels == 1)
    for images in (splits.train, splits.val, splits.test, some, masked):
        assert images.files is not None
        for name, pixels in zip(images.files, images.pixels(), strict=True):
            assert files[name] == make.png(pixels)
    assert len(set(splits.train.files + splits.val.files + splits.test.files)) == 40  # type: ignore[operator]


def test_the_papers_data_is_pooled_by_default_and_other_data_keeps_its_own_split(
    root: Path, tmp_path: Path, make: SimpleNamespace, pin: Callable[[str, Path], str]
) -> None:
    path = make.zip(tmp_path / "c.zip", make.cifar10_files("folders"))
    pin("cifar10", path)
    import_images(path, "cifar10")
    import_images(path, "mine")
    assert load("cifar10").split == "paper"
    mine = load("mine")
    assert mine.split == "official"
    assert {name.split("/")[0] for name in mine.test.files or ()} == {"test"}


def test_images_that_share_a_file_have_no_file_names(
    root: Path, tmp_path: Path, make: SimpleNamespace, pin: Callable[[str, Path], str]
) -> None:
    path = make.zip(tmp_path / "c.zip", make.cifar10_files("pickles"))
    pin("cifar10", path)
    import_images(path, "cifar10")
    assert load("cifar10", "official").train.files is None
