"""Networks of timm with the block attached, as ONNX files."""

from pathlib import Path

import pytest
import torch
from support.foreign import Plain, timm_model
from support.onnx import MEAN, STD, check_agreement, open_session, random_shapes, run, seasoned

from tembed.attachment.attaching import attach
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.trained.hub import save_pretrained
from tembed.trained.onnx_file import to_onnx
from tembed.trained.weights_file import load

CLASSES = ("cat", "dog", "ship")


@pytest.mark.slow
def test_a_convolutional_network_keeps_its_free_image_size(tmp_path: Path) -> None:
    model = attach(timm_model("resnet18"), "layer3", len(CLASSES), example=64, start="paper")
    seasoned(model, 64)
    made = to_onnx(model, tmp_path / "x.onnx", example=64, classes=CLASSES, mean=MEAN, std=STD)
    assert (made.free, made.outputs) == (("batch", "height", "width"), ("logits", "scores", "mixing"))
    session = open_session(made.path)
    for number, shape in enumerate(random_shapes(4, 33, 96)):
        check_agreement(model, session, torch.rand(shape, generator=torch.Generator().manual_seed(number)))


@pytest.mark.slow
def test_a_transformer_keeps_its_only_image_size(tmp_path: Path) -> None:
    vit = timm_model("vit_tiny_patch16_224", img_size=32, depth=3)
    model = attach(vit, "blocks.1", len(CLASSES), example=32, start="paper")
    seasoned(model, 32)
    made = to_onnx(model, tmp_path / "x.onnx", example=32, classes=CLASSES, mean=MEAN, std=STD)
    assert (made.free, made.outputs) == (("batch",), ("logits", "scores", "mixing"))
    session = open_session(made.path)
    assert session.get_inputs()[0].shape == ["batch", 3, 32, 32]
    for batch in (1, 4):
        check_agreement(model, session, torch.rand(batch, 3, 32, 32))


@pytest.mark.slow
def test_a_network_that_resizes_its_images_is_exported_for_one_size(tmp_path: Path) -> None:
    """With one free side, the file would not resize images whose other side is the shorter one."""
    model = attach(Plain(), "layer1", 3, example=16, start="paper")
    model.image_size, side = 16, 24
    seasoned(model, side)
    made = to_onnx(model, tmp_path / "x.onnx", example=side, classes=CLASSES, mean=MEAN, std=STD)
    assert made.free == ("batch",)
    session = open_session(made.path)
    for batch in (1, 3):
        check_agreement(model, session, torch.rand(batch, 3, side, side))


@pytest.mark.slow
def test_a_run_on_frozen_features_exports_and_saves_like_any_other(
    worlds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMBED_CACHE", str(tmp_path / "cache"))
    recipe = Recipe.from_preset("frozen", "tembed:rn20@stage2", "dots", epochs=1, batch_size=13, init="random")
    trained = train(recipe, tmp_path / "run", root=worlds)
    made = to_onnx(trained.folder, tmp_path / "x.onnx")
    assert made.outputs == ("logits", "scores", "mixing")
    images = torch.rand(2, 3, 8, 12)
    found = run(open_session(made.path), images)
    save_pretrained(load(trained.folder), tmp_path / "hub")
    again = load(tmp_path / "hub")
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in again.description.normalisation)
    with torch.no_grad():
        torch.testing.assert_close(found["logits"], again((images - mean) / std).logits, atol=1e-4, rtol=1e-4)
