"""The block in a network of transformers, trained and evaluated by its Trainer.

python examples/with_hugging_face.py     # SHORTEN=1 in the environment trains a few steps
"""

import os
import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import tembed
from tembed.lab.data.parts import generate  # drawn pictures of ten classes; take your own images instead

SHORT = "SHORTEN" in os.environ


class Pictures(Dataset[dict[str, Tensor]]):
    def __init__(self, start: int, end: int):
        self.images = torch.from_numpy(world.pixels()[start:end]).permute(0, 3, 1, 2) / 127.5 - 1
        self.labels = world.labels[start:end]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, n: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[n], "labels": self.labels[n]}


def accuracies(found: Any) -> dict[str, float]:
    """Of the head and of single patches: the predictions are the pair (logits, scores)."""
    (logits, scores), labels = found.predictions, found.label_ids
    patches = (scores.argmax(1) == labels[:, None, None]).mean()
    return {"head": float((logits.argmax(1) == labels).mean()), "patches": float(patches)}


torch.manual_seed(0)
world = generate(80 if SHORT else 3000)
sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
network = ViTForImageClassification(ViTConfig(image_size=32, patch_size=4, num_labels=10, **sizes))
layers = [layer.name for layer in tembed.list_layers(network, 32) if layer.name.endswith(".1")]
model = tembed.attach(network, layers[0], num_classes=10, example=32)  # behind the second of four layers
loss = tembed.EmbeddingLoss()
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        tempfile.mkdtemp(), max_steps=4 if SHORT else 600, per_device_train_batch_size=32, learning_rate=1e-3,
        save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=1 if SHORT else 100,
    ),
    train_dataset=Pictures(0, len(world.labels) * 4 // 5), eval_dataset=Pictures(len(world.labels) * 4 // 5, None),
    compute_metrics=accuracies,
    compute_loss_func=lambda output, labels, num_items_in_batch: loss(output, labels),  # Eq. 3.1
)  # fmt: skip
trainer.train()
print(trainer.evaluate())
