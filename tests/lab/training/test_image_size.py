"""A network of this package that is trained at another size than that of its dataset."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.kills import fingerprint
from support.progress import Crash, CrashAfter, Said

import tembed
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.data.loading import load
from tembed.lab.training.evaluation import evaluate_in_detail
from tembed.lab.training.inputs import about_size, load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run

SHIPPED = "rn26-embed/cifar10"
RECIPE = Recipe("rn26-embed", "tiny", epochs=1, batch_size=16, train_images=32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    """A run at 8 pixels; the images of ``tiny`` have 16."""
    recipe = Recipe("rn26-embed", "dots", epochs=1, batch_size=16, train_images=16)
    return train(recipe, tmp_path_factory.mktemp("runs") / "source", root=worlds)


def test_training_evaluation_prediction_and_analysis_use_the_size_of_the_start(source: Run, tmp_path: Path) -> None:
    said = Said()
    recipe = dataclasses.replace(RECIPE, init=str(source.folder))
    run = train(recipe, tmp_path / "run", progress=said)
    expected = f"images are resized from 16 to 8 pixels, the size of {source.folder}; --image-size N changes it"
    assert expected in said.lines
    assert (run.recipe.image_size, run.metrics[0]["image_side"]) == (8, 8)
    network = tembed.load(run.folder)
    assert network.description.input_size == 8
    found = evaluate_in_detail(run.folder)
    assert run.result is not None
    assert found.evaluation.accuracy == run.result["test_accuracy"]
    (stored,) = load("tiny").test.pixels([3])
    Image.fromarray(stored).save(tmp_path / "3.png")
    (one,) = tembed.predict(network, tmp_path / "3.png")
    np.testing.assert_allclose(one.probabilities, found.predictions.probabilities[3], atol=1e-5)
    assert analyze(run.folder, images_per_class=2).sample.size == (8, 8)


@pytest.mark.parametrize("crops", ["padded", "resized"])
def test_a_resumed_run_ends_with_the_same_weights(crops: str, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, image_size=12, crops=crops)
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", progress=CrashAfter(2), checkpoint_seconds=0)
    assert fingerprint(train(recipe, tmp_path / "run").folder) == fingerprint(whole.folder)


def test_batches_have_the_size_of_the_run_and_the_statistics_of_the_data() -> None:
    stored = load_inputs(RECIPE)
    for crops in ("padded", "resized"):
        small = load_inputs(dataclasses.replace(RECIPE, image_size=12, crops=crops))
        assert {batches.batch(0, 0)[0].shape[2:] for batches in (small.train, small.val, small.test)} == {(12, 12)}
        assert (small.mean, small.std) == (stored.mean, stored.std)


def test_the_size_of_the_start_is_the_default_only_where_it_differs() -> None:
    for model in ("rn26-embed", "tembed:rn26-embed@stage3"):
        recipe = Recipe(model, "tiny", init=SHIPPED)
        assert recipe.complete().image_size == 32
        assert recipe.complete().complete() == recipe.complete()
        assert dataclasses.replace(recipe, image_size=16).complete().image_size == 16
    assert Recipe("rn26-embed", "cifar10", init=SHIPPED).complete().image_size is None
    assert Recipe("rn26-embed", "tiny").complete().image_size is None
    assert Recipe("timm:resnet18@layer3", "tiny", init=SHIPPED).complete().image_size is None


def test_what_is_said_about_the_size() -> None:
    start = Recipe("rn26-embed", "photos", init=SHIPPED)
    (warning,) = about_size(dataclasses.replace(start, image_size=224), 224)
    assert "trained on images of 32 pixels, and a network for 224 pixels has other strides" in warning
    assert list(about_size(start, 32)) == []
    (line,) = about_size(dataclasses.replace(start, image_size=48), 224)
    assert line == "images are resized from 224 to 48 pixels"
    fresh = Recipe("rn26-embed", "photos")
    (note,) = about_size(fresh, 224)
    assert "--image-size 84 makes a step about 7 times as fast" in note
    assert list(about_size(fresh, 84)) == []
