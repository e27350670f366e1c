"""Imported data with train and test folders is trained and tested on them by default; the paper's data is pooled."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.progress import Said

from tembed.lab.data.importing import import_images
from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import run_name


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ImageNet's layout: 10 training and 3 validation images of each of two classes."""
    rng = np.random.default_rng(0)
    for folder, count in (("train", 10), ("val", 3)):
        for name in ("cat", "dog"):
            (tmp_path / "pets" / folder / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pets" / folder / name / f"{number}.png")
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    import_images(tmp_path / "pets", "pets")
    return tmp_path


def test_the_test_images_are_those_of_the_held_out_folder(pets: Path) -> None:
    inputs = load_inputs(Recipe("rn26", "pets", batch_size=4))
    subsets = inputs.splits.train, inputs.splits.val, inputs.splits.test
    tops = [sorted({name.split("/")[0] for name in subset.files or ()}) for subset in subsets]
    assert tops == [["train"], ["train"], ["val"]]
    assert [len(subset) for subset in subsets] == [18, 2, 6]


def test_a_run_records_the_split_and_says_so(pets: Path) -> None:
    said = Said()
    recipe = Recipe("rn26", "pets", batch_size=4, epochs=1)
    run = train(recipe, progress=said)
    assert "pets is split by its own folders; --split paper would pool them" in said.lines
    assert run.recipe.split == "official"
    assert run.result is not None
    assert run.result["test"]["images"] == 6
    assert evaluate(run.folder, "test").images == 6
    pooled = train(Recipe("rn26", "pets", batch_size=4, epochs=1, split="paper"))
    import_images(pets / "pets", "others")
    assert evaluate(pooled.folder, "val").images == 4  # 15 % of the pool, by class
    assert evaluate(pooled.folder, "val", data="others").images == 2  # a tenth of its training folder
    said.lines.clear()
    train(Recipe("rn26", "pets", batch_size=4, epochs=1, split="official"), progress=said)
    assert not any("its own folders" in line for line in said.lines)


def test_names_of_runs_do_not_depend_on_what_is_stored(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled, own = Recipe("rn26", "pets", split="paper"), Recipe("rn26", "pets", split="official")
    names = [run_name(pooled), run_name(own)]
    assert names[0] == "rn26-pets-paper-0" != names[1]
    monkeypatch.setenv("TEMBED_DATA", str(pets / "elsewhere"))
    assert [run_name(pooled), run_name(own)] == names


def test_the_papers_data_keeps_the_papers_split(pets: Path) -> None:
    for name in ("cifar10", "cifar100", "mini-imagenet"):
        import_images(pets / "pets", "other")
        (pets / "store" / "other").rename(pets / "store" / name)
        assert Recipe("rn26", name).complete().split == "paper"
