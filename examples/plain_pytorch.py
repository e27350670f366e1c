"""The block in your own network and your own training loop: plain PyTorch.

    python examples/plain_pytorch.py

Three lines are about the block: `attach`, the loss, and what is done with the patch scores at the end. SHORTEN=1 in the
environment trains a few steps.
"""

import os

import torch
from torch import nn

import tembed
from tembed.lab.data.parts import generate  # drawn pictures of ten classes; take your own images instead

SHORT = "SHORTEN" in os.environ

world = generate(80 if SHORT else 3000)
images = torch.from_numpy(world.pixels()).permute(0, 3, 1, 2) / 127.5 - 1
labels = world.labels
train, test = slice(0, len(labels) * 4 // 5), slice(len(labels) * 4 // 5, None)

torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU()),  # "5" is this ReLU: a map of 8x8
    *(nn.Conv2d(64, 128, 3, 1, 1), nn.BatchNorm2d(128), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
)
model = tembed.attach(network, at="5", num_classes=10, example=32)
loss_of = tembed.EmbeddingLoss()  # Eq. 3.1: half for the head, half for the patches
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)

losses = []
for step in range(12 if SHORT else 600):
    batch = torch.randint(train.stop, (32,))
    loss = loss_of(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(f"step {step}: loss {losses[-1]:.3f}")

model.eval()
with torch.no_grad():
    output = model(images[test])  # Output(logits, scores)
accuracy = (output.logits.argmax(1) == labels[test]).float().mean().item()
votes = output.scores.softmax(1).mean((2, 3)).argmax(1)  # the mean of what the 8x8 patches say
print(f"accuracy {accuracy:.1%}; head and patches agree on {(votes == output.logits.argmax(1)).float().mean():.1%}")
print(tembed.status(model, images[test][:64]))  # where the block is, its size, and what it changes
