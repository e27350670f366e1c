"""A selection of the training images is even over the classes and always the same."""

import dataclasses
from pathlib import Path

import pytest
import torch
from PIL import Image

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images
from tembed.lab.training.inputs import balancing_weights, evenly, load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe


def test_a_selection_is_even_over_the_classes_and_contains_every_smaller_one() -> None:
    labels = torch.arange(100) % 4
    some, more = evenly(labels, 4, 10, seed=0), evenly(labels, 4, 50, seed=0)
    assert set(some.tolist()) < set(more.tolist())
    assert sorted(labels[some].bincount().tolist()) == [2, 2, 3, 3]
    assert labels[evenly(labels, 4, 40, seed=0)].bincount().tolist() == [10, 10, 10, 10]
    assert evenly(labels, 4, 100, seed=0).tolist() == list(range(100))
    assert some.tolist() != evenly(labels, 4, 10, seed=1).tolist()


def test_a_class_with_few_images_gives_all_it_has() -> None:
    labels = torch.tensor([0] * 20 + [1] * 2)
    assert labels[evenly(labels, 2, 10, seed=0)].bincount().tolist() == [8, 2]


def test_balancing_gives_all_classes_the_same_total_weight() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [3])
    weights = balancing_weights(labels, 4)
    assert weights[[0, 1, 3]].tolist() == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    assert weights[labels].mean().item() == pytest.approx(1)


def test_asking_for_more_images_than_exist_is_an_error() -> None:
    with pytest.raises(TembedError, match="`train_images` is 1000, but there are only 130"):
        load_inputs(Recipe("rn26", "tiny", train_images=1000))


def test_data_with_one_class_is_refused_with_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "store"))
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    for number in range(8):
        Image.new("RGB", (8, 8), (30 * number, 0, 0)).save(tmp_path / "pets" / "cat" / f"{number}.png")
    import_images(tmp_path / "pets", "pets")
    with pytest.raises(TembedError, match=r"pets has only the class 'cat'.*at least 2 class folders"):
        load_inputs(Recipe("rn26", "pets", batch_size=2))


def test_a_selection_of_training_images_leaves_validation_and_test_unchanged() -> None:
    whole, some = load_inputs(Recipe("rn26", "tiny")), load_inputs(Recipe("rn26", "tiny", train_images=40))
    assert len(some.train.images) == 40
    assert some.test.images.indices.tolist() == whole.test.images.indices.tolist()
    assert some.splits.mean == whole.splits.mean


def test_resized_crops_have_the_side_of_the_input_and_evaluation_sees_whole_images(tmp_path: Path) -> None:
    recipe = Recipe(
        "tembed:rn20@stage2", "tiny", init="random", image_size=8, crops="resized", epochs=1, train_images=20
    ).complete()
    inputs = load_inputs(dataclasses.replace(recipe, batch_size=10))
    assert inputs.train.batch(0, 0)[0].shape == (10, 3, 8, 8)
    assert inputs.val.batch(0, 0)[0].shape[2:] == (16, 16)
    assert train(dataclasses.replace(recipe, batch_size=10), tmp_path / "run").metrics[0]["image_side"] == 8
    own = load_inputs(Recipe("rn26", "tiny", crops="resized"))
    assert own.train.batch(0, 0)[0].shape[2:] == (16, 16)
    with pytest.raises(TembedError, match="`crops` does not go with `freeze`"):
        Recipe("tembed:rn20@stage2", "tiny", freeze=True, crops="resized").complete()
