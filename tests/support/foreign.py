"""Networks that are not of this package: timm's, and hand-written ones."""

from typing import Any

import torch
from torch import Tensor, nn

from tembed.attachment.sources import timm


def timm_model(name: str, classes: int = 3, **options: Any) -> nn.Module:
    """An untrained network of timm."""
    torch.manual_seed(0)
    return timm().create_model(name, pretrained=False, num_classes=classes, **options)


class Plain(nn.Module):
    """Convolutions in the style of torchvision: stages, pool, flatten, linear."""

    def __init__(self, classes: int = 3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, 2, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(6, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(8, 10, 3, 2, 1), nn.ReLU(), nn.Dropout(0.5))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(10, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(torch.relu(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Odd(nn.Module):
    """A hand-written network with traps: an unused layer, a shared one, a tuple inside, and a dict of layers.

    ``returns``: what it returns: "tuple", "logits" (an object with that attribute) or "dict".
    """

    class Result:
        def __init__(self, logits: Tensor):
            self.logits = logits

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    def __init__(self, returns: str = "tuple"):
        super().__init__()
        self.returns = returns
        self.unused = nn.Conv2d(3, 3, 1)
        self.parts = nn.ModuleDict({"first": nn.Conv2d(3, 4, 3, padding=1), "second": nn.Conv2d(4, 5, 3, padding=1)})
        self.shared = nn.ReLU()
        self.pair = self.Pair()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.shared(self.parts["first"](x))
        x, _ = self.pair(self.shared(self.parts["second"](x)))
        logits = self.head(x.mean((2, 3)))
        if self.returns == "tuple":
            return logits, x
        return {"logits": logits} if self.returns == "dict" else self.Result(logits)


class Tokens(nn.Module):
    """A small network on tokens with a class token, which `mix` mixes with the others."""

    class Mix(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + (x @ x.transpose(1, 2)).softmax(2) @ x

    def __init__(self, classes: int = 3):
        super().__init__()
        self.patch = nn.Conv2d(3, 6, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.mix, self.mix_again = self.Mix(), self.Mix()
        self.head = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.mix_again(self.mix(x))[:, 0])
