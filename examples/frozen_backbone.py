"""The block behind a frozen network, trained on cached features: seconds per epoch on a CPU.

python examples/frozen_backbone.py       # SHORTEN=1 in the environment trains a few steps

`tembed train timm:resnet18@layer3 --data mine --freeze` does the same with a cache on disk, augmentation and resuming.
"""

import os

import torch
from torch import nn

import tembed
from tembed.lab.data.parts import generate  # drawn pictures of ten classes; take your own images instead

SHORT = "SHORTEN" in os.environ

torch.manual_seed(0)
world = generate(80 if SHORT else 3000)
backbone = tembed.load("rn26/cifar10")  # shipped weights; any trained network of yours works
mean, std = (torch.tensor(value)[:, None, None] for value in (backbone.description.mean, backbone.description.std))
images = (torch.from_numpy(world.pixels()).permute(0, 3, 1, 2) / 255 - mean) / std
labels = world.labels
train = len(labels) * 4 // 5

# 1. Cut the network at a layer and compute the features once.
cut = tembed.attach(backbone, at="stage3", num_classes=10, example=32, block="none").eval()
with torch.no_grad():
    features = torch.cat([cut.features(batch) for batch in images.split(100)])  # (N, 128, 8, 8)
tembed.detach(cut)

# 2. Train the block and a linear head on them.
block = tembed.FeatureEmbedding(channels=features.shape[1], num_classes=10)
head = nn.Linear(block.out_channels, 10)
loss_of, losses = tembed.EmbeddingLoss(), []
optimizer = torch.optim.AdamW([*block.parameters(), *head.parameters()], 5e-3)


def answer(f: torch.Tensor) -> tembed.Output:
    mixed, scores = block(f)
    return tembed.Output(head(mixed.mean((2, 3))), scores)


for _ in range(12 if SHORT else 600):
    batch = torch.randint(train, (64,))
    loss = loss_of(answer(features[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

block.eval()
with torch.no_grad():
    right = (answer(features[train:]).logits.argmax(1) == labels[train:]).float().mean().item()
print(f"accuracy {right:.1%} on {len(labels) - train} images; the network itself never saw this world")
