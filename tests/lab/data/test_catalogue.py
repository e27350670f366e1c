"""One record per dataset: a dataset registered from outside works everywhere that the built-in ones do."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tembed
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data import catalogue
from tembed.lab.data.catalogue import Dataset, dataset, list_datasets, register_dataset, super_classes
from tembed.lab.data.checking import check
from tembed.lab.data.contact_sheets import contact_sheet
from tembed.lab.data.getting import get
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load

PETS = {"cat": 6, "dog": 6}


@pytest.fixture(autouse=True)
def registry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that a test registers are forgotten after it."""
    monkeypatch.setattr(catalogue, "_RECORDS", dict(catalogue._RECORDS))


class Copied:
    """A user's own source: copies an archive as if it were fetched."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive

    def fetch(self, folder: Path, progress: Progress) -> Path:
        folder.mkdir(parents=True)
        return Path(self.archive.replace(folder / self.archive.name))


class Generator:
    """Counts how often it draws."""

    calls = 0

    def __call__(self) -> ImageSet:
        self.calls += 1
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
        part_map = rng.integers(0, 3, (20, 8, 8), dtype=np.uint8)
        return ImageSet(images, torch.arange(20) % 2, ("car", "cat"), torch.arange(20), part_map, ("wheel", "fur"))


def test_the_built_in_records_agree_with_the_paper() -> None:
    assert list_datasets() == ["cifar10", "cifar100", "mini-imagenet", "parts"]
    papers = [name for name in list_datasets() if dataset(name).in_paper]
    assert papers == ["cifar10", "cifar100", "mini-imagenet"]
    assert [(dataset(name).side, dataset(name).num_classes) for name in papers] == [(32, 10), (32, 100), (84, 100)]
    assert {dataset(name).images for name in papers} == {60_000}
    assert [name for name in list_datasets() if dataset(name).block_options] == ["cifar10"]
    assert dataset("cifar10").look_alikes == (("automobile", "truck"), ("airplane", "bird"))
    assert set(map(frozenset, dataset("cifar10").passages)) == {
        frozenset({"bird", "airplane"}),
        frozenset({"automobile", "truck"}),
        frozenset({"airplane", "ship"}),
    }


@pytest.mark.slow
def test_the_record_of_parts_matches_what_is_drawn() -> None:
    record = dataset("parts")
    assert record.generate is not None
    made = record.generate()
    assert (len(made), made.size, made.classes) == (record.images, (record.side, record.side), record.classes)


def test_a_generated_dataset_is_made_on_first_use_and_then_read(root: Path) -> None:
    generate = Generator()
    register_dataset(Dataset("toys", classes=("car", "cat"), generate=generate))
    splits = load("toys")
    whole = Generator()()
    assert whole.part_map is not None
    assert splits.train.part_map is not None
    assert splits.train.parts == ("wheel", "fur")
    assert np.array_equal(splits.train.pixels(), whole.pixels(splits.train.indices.numpy()))
    assert torch.equal(splits.train.part_map, whole.part_map[splits.train.indices])
    load("toys", seed=1)
    get("toys")
    assert check("toys").count == 20
    contact_sheet("toys")
    assert generate.calls == 1


def test_a_generated_dataset_takes_no_files(root: Path, tmp_path: Path) -> None:
    register_dataset(Dataset("toys", generate=Generator()))
    with pytest.raises(TembedError, match="'toys' is generated, not imported: choose another name"):
        import_images(tmp_path, "toys")
    with pytest.raises(TembedError, match=r"'toys' is generated, so `copy` \(somewhere\) does not apply"):
        get("toys", copy="somewhere")
    with pytest.raises(TembedError, match="'toys' is generated, so it takes no file names"):
        Dataset("toys", generate=Generator(), file_names=("toys.zip",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pool": np.zeros((20, 8, 8, 3))}, r"made images of float64 \(4, 8, 8, 3\)"),
        ({"pool": np.zeros((20, 3, 8, 8), np.uint8)}, r".* uint8 \(4, 3, 8, 8\) .* must make uint8 \(N, H, W, 3\)"),
        ({"labels": torch.tensor([0, 1, 2, 0])}, ".* labels up to 2: .* labels below 2"),
        ({"classes": ("a", "b")}, "made the classes a, b, but the record says car, cat"),
    ],
)
def test_a_generator_that_makes_the_wrong_thing_is_named(changes: dict[str, object], said: str) -> None:
    good = Generator()().subset(torch.arange(4))
    made = replace(good, pool_part_map=None, parts=(), **changes)  # type: ignore[arg-type]
    register_dataset(Dataset("toys", classes=("car", "cat"), generate=lambda: made))
    with pytest.raises(TembedError, match=f"the generator of 'toys' {said}"):
        load("toys")


def test_an_outside_dataset_is_found_on_disk_under_its_usual_name(tmp_path: Path, make: SimpleNamespace) -> None:
    make.zip(tmp_path / "my-pets.zip", make.class_folders(PETS))
    register_dataset(Dataset("pets", classes=("cat", "dog"), file_names=("pets.tar", "my-pets.zip")))
    assert get("pets").manifest["class_counts"] == [6, 6]


def test_an_outside_source_is_fetched_and_removed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    archive = make.zip(tmp_path / "fetched.zip", make.class_folders(PETS))
    register_dataset(Dataset("pets", sources=(Copied(archive),)))
    assert len(get("pets").labels) == 12
    assert not list((root / "downloads").iterdir())


def test_a_record_without_sources_asks_for_a_copy(tmp_path: Path, make: SimpleNamespace) -> None:
    register_dataset(Dataset("pets"))
    with pytest.raises(TembedError, match="no source is left for pets: name a copy on disk with `copy`"):
        get("pets")
    assert len(get("pets", copy=make.folder(tmp_path / "p", make.class_folders(PETS))).labels) == 12


def test_a_pinned_outside_dataset_takes_only_its_own_pixels(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    """The pin is the same for every form of the files and for any order of the classes in them."""
    files = make.class_folders(PETS, top=("train/", "test/"))
    folder, archive = make.folder(tmp_path / "p", files), make.tar(tmp_path / "p.tgz", files, "w:gz")
    register_dataset(Dataset("pets", title="Pets", classes=("dog", "cat"), sha256="0" * 64))
    with pytest.raises(TembedError, match=r"p is not the published pets: 24 images with the sha256 \w+") as caught:
        import_images(folder, "pets")
    (found,) = re.findall(r"sha256 (\w{64})", str(caught.value))
    register_dataset(Dataset("beasts", classes=("dog", "cat"), sha256=found))
    assert import_images(folder, "beasts").sha256 == import_images(archive, "beasts").sha256 == found
    stored = import_images(archive, "beasts")
    assert stored.classes == ("dog", "cat")
    dogs = {pixels.tobytes() for subset in (100, 101) for pixels in make.random_images(6, 8, subset)}
    assert {image.tobytes() for image in stored.images[stored.labels == 0]} == dogs
    with pytest.raises(TembedError, match=r"1 classes \(cat, …\), which are not those of Pets"):
        import_images(make.folder(tmp_path / "cats", make.class_folders({"cat": 4})), "pets")


def test_a_pinned_dataset_of_broken_images_is_refused_in_one_line(tmp_path: Path, make: SimpleNamespace) -> None:
    register_dataset(Dataset("pets", sha256="0" * 64))
    folder = make.folder(tmp_path / "p", {"cat/1.png": b"broken", "dog/1.png": b"broken"})
    with pytest.raises(TembedError, match="no readable image"):
        import_images(folder, "pets", skip_broken=True)


def test_without_a_pin_the_classes_still_get_the_order_of_the_record(tmp_path: Path, make: SimpleNamespace) -> None:
    register_dataset(Dataset("pets", classes=("dog", "cat")))
    stored = import_images(make.folder(tmp_path / "p", make.class_folders({"cat": 5, "dog": 6})), "pets")
    assert (stored.classes, stored.manifest["class_counts"]) == (("dog", "cat"), [6, 5])
    assert (stored.images[stored.labels == 1] == make.random_images(5, 8, 0)).all()


def test_the_command_line_knows_an_outside_dataset(
    tmp_path: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    register_dataset(Dataset("toys", title="Toys", generate=Generator()))
    assert main(["data", "list"]) == 0
    assert re.search(r"toys +Toys +not stored: tembed data get toys", capsys.readouterr().out)
    for command in ("get", "check", "show"):
        assert main(["data", command, "toys"]) == 0
    assert main(["data", "list"]) == 0
    assert re.search(r"toys +Toys +20 images of 8x8, 2 classes, 10 each", capsys.readouterr().out)


def test_super_classes_come_from_the_record() -> None:
    groups = {"animals": ("cat", "dog"), "vehicles": ("car",)}
    register_dataset(Dataset("toys", classes=("cat", "dog", "car"), super_classes=groups))
    assert super_classes("toys") == groups
    with pytest.raises(TembedError, match=r"'pets' has no super-classes; .* cifar10, cifar100, parts, toys"):
        super_classes("pets")


def test_an_imported_dataset_has_a_record_with_only_its_name() -> None:
    assert dataset("holidays") == Dataset("holidays")
    assert "holidays" not in list_datasets()
    assert (dataset("holidays").title, dataset("holidays").block_options, dataset("holidays").in_paper) == (
        "holidays",
        {},
        False,
    )


def test_a_name_is_registered_once() -> None:
    record = register_dataset(Dataset("toys", side=8))
    assert register_dataset(Dataset("toys", side=8)) is record  # a plugin that is imported twice
    with pytest.raises(TembedError, match="'toys' is already registered"):
        register_dataset(Dataset("toys", side=16))
    with pytest.raises(TembedError, match="'cifar10' is already registered"):
        register_dataset(Dataset("cifar10"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "My Pets"}, "'My Pets' cannot be the name of a dataset"),
        ({"num_classes": 3}, "lists 2 classes but says that it has 3"),
        ({"super_classes": {"animals": ("cat", "dgo")}}, "the super-classes name 'dgo', .* did you mean 'dog'"),
        ({"look_alikes": (("cat", "wolf"),)}, "the look-alikes name 'wolf', .* its classes are cat, dog"),
        ({"passages": (("dog", "fish"),)}, "the passages name 'fish'"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(TembedError, match=said):
        Dataset(**{"name": "pets", "classes": ("cat", "dog"), **fields})  # type: ignore[arg-type]


@pytest.mark.process
def test_records_are_read_without_torch_and_numpy() -> None:
    code = """
import sys
from tembed.lab.data import dataset, list_datasets, super_classes
assert [dataset(name).num_classes for name in list_datasets()] == [10, 100, 100, 10]
super_classes("parts")
sys.exit(bool({"torch", "numpy", "PIL"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.process
def test_the_command_line_lists_and_imports_without_torch(tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "p", make.class_folders(PETS))
    code = """
import sys
import tembed
from tembed.cli.main import main
assert main(["data", "import", sys.argv[1], "--name", "pets"]) == 0
assert main(["data", "list"]) == 0
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder)], stdout=subprocess.DEVNULL)
    assert done.returncode == 0


def test_classes_that_files_name_by_a_code_are_called_by_their_titles(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    """What is stored, and so its checksum, stays as the files have it."""
    register_dataset(Dataset("coded", class_titles={"n01": "cat", "n03": "cow"}))
    stored = import_images(make.zip(tmp_path / "coded.zip", make.class_folders({"n01": 6, "n02": 6})), "coded")
    assert stored.manifest["classes"] == ["n01", "n02"]
    assert load("coded").train.classes == ("cat", "n02")


def test_the_classes_of_mini_imagenet_have_names() -> None:
    titles = dataset("mini-imagenet").class_titles
    assert len(set(titles.values())) == len(titles) == 100
    assert titles["n02129165"] == "lion"
    assert titles["n04275548"] == "spider web", "a name that is broken across two lines"
    assert tembed.load("rn26-embed/mini-imagenet").description.classes == tuple(titles[name] for name in sorted(titles))
