"""The block in a network of timm: fine-tuning in a plain loop.

    python examples/with_timm.py             # SHORTEN=1 in the environment trains a few steps

With `pretrained=True` timm downloads weights. The block starts as a bystander: until the first step the network answers
exactly as before.
"""

import os

import timm
import torch

import tembed
from tembed.lab.data.parts import generate  # drawn pictures of ten classes; take your own images instead

SHORT = "SHORTEN" in os.environ

torch.manual_seed(0)
world = generate(20 if SHORT else 2000, size=64)
images = torch.from_numpy(world.pixels()).permute(0, 3, 1, 2) / 127.5 - 1
labels = world.labels
train = len(labels) * 4 // 5

network = timm.create_model("resnet18", pretrained=False, num_classes=10).eval()
for layer in tembed.list_layers(network, 64):  # every place where the block can go, with the shape of its map
    if "." not in layer.name:
        print(layer)
with torch.no_grad():
    before = network(images[:8])
model = tembed.attach(network, at="layer3", num_classes=10, example=64)
with torch.no_grad():
    print("logits before and after `attach` are equal:", torch.equal(before, model(images[:8]).logits))

model.train()
loss_of, losses = tembed.EmbeddingLoss(), []
slow, fast = list(network.parameters()), list(model.block.parameters())
optimizer = torch.optim.AdamW([{"params": slow, "lr": 5e-4}, {"params": fast, "lr": 2e-3}])
for _ in range(4 if SHORT else 300):
    batch = torch.randint(train, (8 if SHORT else 32,))
    loss = loss_of(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    right = (model(images[train:]).logits.argmax(1) == labels[train:]).float().mean().item()
    with tembed.disabled(model):  # the same weights without the block
        without = (model(images[train:]).logits.argmax(1) == labels[train:]).float().mean().item()
print(f"accuracy {right:.1%}, without the block {without:.1%}")
tembed.save_block(model, "block.safetensors")  # the block alone; `tembed.load_block` puts it back
