"""Three maximizers that ask what BN-ReLU owes to its batch statistics (§3.2, §4.1): margin soft-max behind a norm.

A plugin: each differs from `entropic` in one thing, what stands before the margin soft-max.

    tembed train rn20 --data cifar10 --maximizer bn-entropic --plugin normalised_maximizers
"""

from torch import Tensor, nn

from tembed import maximizers
from tembed.maximizers import EPS, ETA, MU, Entropic


class Affine(nn.Module):
    """A learned gain and bias for each channel, as batch norm has, without statistics."""

    def __init__(self, channels: int):
        super().__init__()
        self.scale = nn.Conv2d(channels, channels, 1, groups=channels)
        nn.init.ones_(self.scale.weight)
        nn.init.zeros_(self.scale.bias)

    def forward(self, a: Tensor) -> Tensor:
        return self.scale(a)


def register(name: str, norm: type[nn.Module]) -> None:
    """Make margin soft-max behind ``norm(channels)`` known under a name, with the constants of `entropic`."""
    maximizers.register(
        name,
        lambda channels, **constants: nn.Sequential(norm(channels), Entropic(**constants)),
        {"mu": MU, "eta": ETA, "eps": EPS},
    )


class LayerNorm(nn.GroupNorm):
    """Mean and variance of each image over its channels and pixels; no statistics of the batch."""

    def __init__(self, channels: int):
        super().__init__(1, channels)


register("bn-entropic", nn.BatchNorm2d)
register("affine-entropic", Affine)
register("layernorm-entropic", LayerNorm)
