"""The block in Lightning: a LightningModule whose loss is Eq. 3.1.

python examples/with_lightning.py        # SHORTEN=1 in the environment trains a few steps
"""

import os

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tembed
from tembed.lab.data.parts import generate  # drawn pictures of ten classes; take your own images instead

SHORT = "SHORTEN" in os.environ


class WithBlock(lightning.LightningModule):
    def __init__(self, network: nn.Module, at: str, num_classes: int):
        super().__init__()
        self.model = tembed.attach(network, at, num_classes, example=32)
        self.loss = tembed.EmbeddingLoss()
        self.losses: list[float] = []

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, labels = batch
        loss = self.loss(self.model(images), labels)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        images, labels = batch
        logits, scores = self.model(images)
        self.log("head", (logits.argmax(1) == labels).float().mean())
        self.log("patches", (scores.argmax(1) == labels[:, None, None]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 2e-3)


world = generate(40 if SHORT else 3000)
data = TensorDataset(torch.from_numpy(world.pixels()).permute(0, 3, 1, 2) / 127.5 - 1, world.labels)
train, val = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))

lightning.seed_everything(0, verbose=False)
features = nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU()
network = nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
wrapped = WithBlock(network, at="2", num_classes=10)  # behind the first ReLU
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": not SHORT}
trainer = lightning.Trainer(max_epochs=5, accelerator="auto", devices=1, **quiet)
trainer.fit(wrapped, DataLoader(train, 16, shuffle=True), DataLoader(val, 64))
(found,) = trainer.validate(wrapped, DataLoader(val, 64), verbose=False)
print(f"accuracy of the head {found['head']:.1%}, of single patches {found['patches']:.1%}")
