"""The shipped weights for ``torch.hub``: ``torch.hub.load("PATH", "rn26_embed_cifar10", source="local")``."""

dependencies = ["torch", "numpy", "safetensors", "filelock", "PIL", "lazy_loader"]

import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "src"))

import tembed  # noqa: E402


def rn26_cifar10() -> Any:
    """RN26, trained on CIFAR-10."""
    return tembed.load("rn26/cifar10")


def rn26_embed_cifar10() -> Any:
    """RN26 with the block, trained on CIFAR-10."""
    return tembed.load("rn26-embed/cifar10")


def rn26_embed_cifar100() -> Any:
    """RN26 with the block, trained on CIFAR-100."""
    return tembed.load("rn26-embed/cifar100")


def rn26_embed_mini_imagenet() -> Any:
    """RN26 with the block, trained on Mini-ImageNet."""
    return tembed.load("rn26-embed/mini-imagenet")


def create_model(name: str, num_classes: int = 10, input_size: int = 32, **options: Any) -> Any:
    """A freshly initialised network, as `tembed.create_model` makes it."""
    return tembed.create_model(name, num_classes, input_size, **options)
