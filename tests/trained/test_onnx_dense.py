"""DenseNet with the concatenating block as an ONNX file, with three layers in each stage to save time."""

from pathlib import Path

import pytest
import torch
from support.onnx import MEAN, STD, check_agreement, open_session, random_shapes, seasoned

from tembed.models import densenet
from tembed.models.registry import create_model
from tembed.trained.onnx_file import to_onnx


@pytest.mark.slow
def test_dn100_embed_cat_agrees_with_torch_for_any_batch_and_image_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(densenet, "LAYERS", 3)
    torch.manual_seed(0)
    model = seasoned(create_model("dn100-embed-cat", 4, softmax_on_bn=True))
    made = to_onnx(model, tmp_path / "x.onnx", mean=MEAN, std=STD)
    assert (made.free, made.outputs) == (("batch", "height", "width"), ("logits", "scores", "mixing"))
    session = open_session(made.path)
    for number, shape in enumerate(random_shapes(5, 8, 40)):
        images = torch.rand(shape, generator=torch.Generator().manual_seed(number))
        check_agreement(model, session, images)
