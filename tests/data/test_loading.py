"""A name becomes train, validation and test tensors."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from tembed.data import ImageSet, get, import_images, load, super_classes
from tembed.errors import TembedError


@pytest.fixture
def pets(root: Path, tmp_path: Path, make: SimpleNamespace) -> np.ndarray:
    """The stored pool of 20 cats and 20 dogs."""
    return import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 20, "dog": 20})), "pets").images


def test_every_image_arrives_once_with_its_label(pets: np.ndarray) -> None:
    splits = load("pets")
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [26, 6, 8]
    for part in (splits.train, splits.val, splits.test):
        assert part.images.dtype == torch.uint8
        assert part.labels.dtype == torch.int64
        assert part.images.is_contiguous(memory_format=torch.channels_last)
        assert (part.images.permute(0, 2, 3, 1).numpy() == pets[part.indices.numpy()]).all()
        assert (part.labels.numpy() == (part.indices.numpy() >= 20)).all()
        assert part.classes == ("cat", "dog")
        assert part.size == (8, 8)


def test_mean_and_deviation_are_the_training_images_alone(pets: np.ndarray) -> None:
    splits = load("pets", seed=3)
    pixels = splits.train.images.double().div(255)
    assert splits.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-12)
    assert splits.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), rel=1e-12)


def test_what_is_needed_to_cut_it_so_again_is_recorded(pets: np.ndarray) -> None:
    splits = load("pets", seed=3)
    again = load(splits.name, splits.split, splits.seed)  # type: ignore[arg-type]
    assert again.sha256 == splits.sha256
    assert torch.equal(again.test.indices, splits.test.indices)
    assert not torch.equal(load("pets", seed=4).test.indices, splits.test.indices)


def test_changing_a_loaded_tensor_leaves_the_store_alone(pets: np.ndarray) -> None:
    load("pets").train.images.zero_()
    assert load("pets").train.images.any()


def test_a_class_with_too_few_images_is_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 20, "dog": 3})), "pets")
    with pytest.raises(TembedError, match="class 'dog' has 3 images, too few to split"):
        load("pets")


def test_a_dataset_that_is_not_there_says_how_to_get_it(pets: np.ndarray) -> None:
    with pytest.raises(TembedError, match=r"'cifar10' is not in .*: run `tembed data get cifar10`"):
        load("cifar10")
    with pytest.raises(TembedError, match="that holds pets; add your own images with `tembed data import"):
        load("birds")


def test_an_unknown_split_says_which_there_are(pets: np.ndarray) -> None:
    with pytest.raises(TembedError, match="split 'papre' is unknown: use 'paper' or 'official'"):
        load("pets", split="papre")  # type: ignore[arg-type]


def test_parts_are_made_on_first_use_and_then_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def generate() -> ImageSet:
        made.append(1)
        rng = np.random.default_rng(0)
        images = torch.from_numpy(rng.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8))
        part_map = torch.from_numpy(rng.integers(0, 3, (20, 8, 8), dtype=np.uint8))
        labels = torch.arange(20) % 2
        return ImageSet(images, labels, ("car", "cat"), torch.arange(20), part_map, ("wheel", "fur"))

    module = ModuleType("tembed.data.parts.world")
    module.generate = generate  # type: ignore[attr-defined]
    module.SUPER_CLASSES = {"animals": ("cat",), "vehicles": ("car",)}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tembed.data.parts.world", module)
    splits = load("parts")
    assert splits.train.parts == ("wheel", "fur")
    assert splits.train.part_map is not None
    whole = generate()
    assert whole.part_map is not None
    assert torch.equal(splits.train.part_map, whole.part_map[splits.train.indices])
    assert torch.equal(splits.train.images, whole.images[splits.train.indices])
    load("parts", seed=1)
    get("parts")
    assert len(made) == 2  # once by load, once above
    assert super_classes("parts") == {"animals": ("cat",), "vehicles": ("car",)}


def test_the_library_works_without_rich_and_tyro(pets: np.ndarray) -> None:
    code = """
import sys
sys.modules["rich"] = sys.modules["tyro"] = None
import tembed.data
tembed.data.check("pets")
tembed.data.contact_sheet("pets")
assert len(tembed.data.load("pets").train) == 26
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
