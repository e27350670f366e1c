"""Feature embedding by template matching (BMVC 2022) in one file of plain PyTorch: read it beside the paper.

RN26-Ours on CIFAR-10: the network (§3.4, appendix A), the block (§3.3), the loss (Eq. 3.1) and the training (§4).

    tembed data get cifar10                         # leaves images.npy and labels.npy in one folder
    python examples/paper_in_one_file.py FOLDER     # on a GPU if there is one

SHORTEN=1 in the environment trains three steps, to see that everything runs.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, LAMBDA, BATCH, RATE, DECAY = 10, 0.5, 32, 1e-3, 1e-4  # §4
EPOCHS = 200  # a guess: the paper does not say how many


# ---- §3.2: BN-ReLU picks the best-matching kernels of the convolution before it. It is a soft arg-max.


class BNReLU(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, a: Tensor) -> Tensor:
        return self.bn(a).relu()


# ---- §3.3: the block. It matches every patch to the classes and writes a mixture of class vectors.


def patch_mean(f: Tensor, window: int) -> Tensor:
    """The mean over the window around each pixel, inside the map only: ``x_g`` of §3.3."""
    before, after = (window - 1) // 2, window // 2
    inside = F.pad(torch.ones_like(f[:1, :1]), (before, after, before, after))
    count = F.avg_pool2d(inside, window, stride=1)  # the share of the window that is inside the map
    return F.avg_pool2d(F.pad(f, (before, after, before, after)), window, stride=1) / count


class PatchScores(nn.Module):
    """``a_k = alpha_k^T x_g + beta_k``: how well the patch at each pixel matches each class."""

    def __init__(self, channels: int):
        super().__init__()
        self.score = nn.Conv2d(channels, CLASSES, 1)

    def forward(self, f: Tensor) -> Tensor:
        return self.score(patch_mean(f, f.shape[2] // 2))  # a patch is half the map: 4x4 of 8x8


class FeatureEmbedding(nn.Module):
    """Fig. 2: ``f -> conv1x1(f) + f'`` with ``f' = sum_k p_k nu_k``. Also returns the scores, for the loss."""

    def __init__(self, channels: int):
        super().__init__()
        self.match = PatchScores(channels)
        self.maximizer = BNReLU(CLASSES)  # p_k: how much of class k the patch is
        self.values = nn.Conv2d(CLASSES, channels, 1, bias=False)  # its columns are the class vectors nu_k
        self.shortcut = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.maximizer.bn(self.match(f))  # on CIFAR-10 the soft-max reads the normalised scores ...
        embedding = self.values(scores.relu())
        return self.shortcut(patch_mean(f, 2)) + embedding, scores  # ... and the shortcut a 2x2 mean (appendix A)


# ---- Eq. 3.1: the head and every patch predict the class of the image.


def loss_of(logits: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    patches = labels[:, None, None].expand(-1, *scores.shape[2:])
    return (1 - LAMBDA) * F.cross_entropy(logits, labels) + LAMBDA * F.cross_entropy(scores, patches)


# ---- §3.4, appendix A: RN26, a pre-activation ResNet with bottleneck units, and the block before its last stage.


class Bottleneck(nn.Module):
    """§3.1: ``match`` compares pixels and kernels, ``maximizer`` picks some, ``embed`` writes their vectors."""

    def __init__(self, channels: int, inner: int, out: int, stride: int = 1, *, first: bool, after_stem: bool = False):
        super().__init__()
        self.preact = nn.Identity() if after_stem else BNReLU(channels)
        self.reduce = nn.Conv2d(channels, inner, 1, stride, bias=False)
        self.norm = BNReLU(inner)
        self.match = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.maximizer = BNReLU(inner)
        self.embed = nn.Conv2d(inner, out, 1, bias=False)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if first else None

    def forward(self, x: Tensor) -> Tensor:
        f = self.preact(x)
        shortcut = x if self.shortcut is None else self.shortcut(f)
        return self.embed(self.maximizer(self.match(self.norm(self.reduce(f))))) + shortcut


def stage(channels: int, inner: int, out: int, stride: int, *, after_stem: bool = False) -> nn.Sequential:
    first = Bottleneck(channels, inner, out, stride, first=True, after_stem=after_stem)
    return nn.Sequential(first, Bottleneck(out, inner, out, first=False))


class RN26Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), BNReLU(16))
        self.stage1 = stage(16, 32, 64, 1, after_stem=True)  # 32x32 pixels
        self.stage2 = stage(64, 64, 128, 2)  # 16x16
        self.stage3 = stage(128, 128, 128, 2)  # 8x8
        self.block = FeatureEmbedding(128)
        self.stage4 = stage(128, 128, 256, 1)
        self.norm = BNReLU(256)
        self.head = nn.Linear(256, CLASSES)
        for module in self.modules():  # a guess: the paper does not say how the weights start
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.stage3(self.stage2(self.stage1(self.stem(x))))
        f, scores = self.block(f)
        return self.head(self.norm(self.stage4(f)).mean((2, 3))), scores


# ---- §4: all images pooled, 65 / 15 / 20 %; Adam with L2 decay; random crops and flips; the best validation epoch.


def split(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions for training, validation and test, the same shares of every class."""
    generator, parts = torch.Generator().manual_seed(0), ([], [], [])
    for label in range(CLASSES):
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        bounds = [int(0.65 * len(members)), int(0.80 * len(members))]
        for part, chosen in zip(parts, members.tensor_split(bounds), strict=True):
            part.append(chosen)
    return tuple(map(torch.cat, parts))


def augmented(x: Tensor) -> Tensor:
    """Each image padded by 4 pixels, cropped to 32x32 at random, and mirrored half of the time."""
    n, _, height, width = x.shape
    rows = torch.randint(9, (n, 1), device=x.device) + torch.arange(height, device=x.device)
    columns = torch.randint(9, (n, 1), device=x.device) + torch.arange(width, device=x.device)
    columns = torch.where(torch.rand(n, 1, device=x.device) < 0.5, columns, columns.flip(1))
    images = torch.arange(n, device=x.device)[:, None, None]
    return F.pad(x, (4, 4, 4, 4)).permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    predicted = torch.cat([model(images)[0].argmax(1) for images in x.split(500)])
    return 100 * (predicted == y).float().mean().item()


def main(folder: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shorten = "SHORTEN" in os.environ
    torch.manual_seed(0)
    labels = torch.from_numpy(np.load(folder / "labels.npy"))
    train, val, test = (part[:: len(part) // 96] if shorten else part for part in split(labels))
    images = torch.from_numpy(np.load(folder / "images.npy", mmap_mode="r")[np.concatenate([train, val, test])])
    images, labels = images.permute(0, 3, 1, 2).float().div_(255), labels[torch.cat([train, val, test])].to(device)
    mean, std = (getattr(images[: len(train)], name)((0, 2, 3))[:, None, None] for name in ("mean", "std"))
    images = ((images - mean) / std).to(device)
    (x, x_val, x_test), (y, y_val, y_test) = (
        all_.split([len(train), len(val), len(test)]) for all_ in (images, labels)
    )

    model, best, best_weights = RN26Ours().to(device), 0.0, {}
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")  # Table 1: 0.98 million
    optimizer = torch.optim.Adam(model.parameters(), RATE, weight_decay=DECAY)
    for epoch in range(1 if shorten else EPOCHS):
        model.train()
        for batch in torch.randperm(len(x), device=device).split(BATCH):
            loss = loss_of(*model(augmented(x[batch])), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = accuracy(model, x_val, y_val)
        if found > best or not best_weights:
            best, best_weights = found, {name: value.clone() for name, value in model.state_dict().items()}
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, validation {found:.2f} %, best {best:.2f} %", flush=True)
    model.load_state_dict(best_weights)
    print(f"test: {accuracy(model, x_test, y_test):.2f} %")  # the paper: 91.06 %


if __name__ == "__main__":
    main(Path(sys.argv[1]))
