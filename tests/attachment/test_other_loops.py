"""An attached network in the training loop of Hugging Face. `tests/test_examples.py` has other loops."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tembed
from tembed.attachment import Attached
from tembed.attachment.sources import timm

IMAGES = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(24) % 3


pytestmark = pytest.mark.filterwarnings("default")  # those of other people's packages


@pytest.fixture(scope="module")
def transformers() -> Any:
    timm()  # makes torchvision importable here, which transformers looks for
    return importlib.import_module("transformers")


def vit(transformers: Any) -> Attached:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=3, hidden_dropout_prob=0.0, **sizes)
    network = transformers.ViTForImageClassification(config)
    layer = next(one.name for one in tembed.list_layers(network, 16) if one.name.endswith(".0"))
    return tembed.attach(network, layer, 3, example=16, start="paper")


class Examples(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, n: int) -> dict[str, Tensor]:
        return {"pixel_values": IMAGES[n], "labels": LABELS[n], "unused": torch.zeros(())}


def test_a_call_by_keyword_gives_named_outputs_with_the_loss_of_the_paper(transformers: Any) -> None:
    model = vit(transformers).eval()
    plain, named = model(IMAGES), model(pixel_values=IMAGES, labels=LABELS)
    assert list(named) == ["loss", "logits", "scores"]
    assert torch.equal(named.logits, plain.logits)
    assert torch.equal(named["scores"], plain.scores)
    assert torch.equal(named.loss, tembed.EmbeddingLoss()(plain, LABELS))
    model.loss_weight = 0.0
    assert torch.equal(model(IMAGES, labels=LABELS).loss, nn.functional.cross_entropy(plain.logits, LABELS))
    assert list(model(pixel_values=IMAGES)) == ["logits", "scores"]
    assert model(pixel_values=IMAGES).loss is None
    with tembed.disabled(model):
        assert list(model(pixel_values=IMAGES, labels=LABELS)) == ["loss", "logits"]


def test_hugging_faces_trainer_trains_and_evaluates(transformers: Any, tmp_path: Path) -> None:
    model = vit(transformers)
    before = [p.detach().clone() for p in model.block.parameters()]
    seen: list[tuple[int, ...]] = []

    def accuracy(found: Any) -> dict[str, float]:
        logits = found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
        seen.append(logits.shape)
        return {"accuracy": float((logits.argmax(1) == found.label_ids).mean())}

    loss = tembed.EmbeddingLoss()
    training = {"num_train_epochs": 12, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "seed": 0}
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(str(tmp_path), **training, **quiet),
        train_dataset=Examples(),
        eval_dataset=Examples(),
        compute_metrics=accuracy,
    )
    first, _ = trainer.evaluate(), trainer.train()
    last = trainer.evaluate()
    assert seen == [(24, 3)] * 2
    with torch.no_grad():
        assert last["eval_loss"] == pytest.approx(loss(model.eval()(IMAGES), LABELS).item(), abs=1e-4)
    assert last["eval_loss"] < first["eval_loss"] - 0.2
    assert last["eval_accuracy"] > 0.6
    after = list(model.block.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
