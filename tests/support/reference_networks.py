"""The networks of appendix A once more, from the paper's text: with the weights of a network, and none of its code."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


class Reference:
    """What the networks have in common: the layers by the names of their weights, the block, the head.

    ``strides``: those of the stages. ``raw_projection``: a projection shortcut reads the raw input of its unit, as in
    the Keras conventions, and not the pre-activated one.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], strides: Sequence[int], raw_projection: bool = False, eps: float = 1e-5
    ):
        self.weights, self.strides, self.raw_projection, self.eps = weights, strides, raw_projection, eps

    def conv(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        """A convolution whose padding keeps the side."""
        kernel = self.weights[f"{name}.weight"]
        return F.conv2d(x, kernel, self.weights.get(f"{name}.bias"), stride, padding=kernel.shape[-1] // 2)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Batch normalisation with the running statistics."""
        mean, var, scale, shift = (
            self.weights[f"{name}.{one}"][:, None, None] for one in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + self.eps).sqrt() * scale + shift

    def norm_relu(self, name: str, x: Tensor) -> Tensor:
        return self.norm(f"{name}.bn", x).clamp(min=0)

    def stem(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def stage(self, number: int, x: Tensor) -> Tensor:
        raise NotImplementedError

    def block(self, f: Tensor, *, softmax_on_bn: bool, smooth_shortcut: bool) -> tuple[Tensor, Tensor]:
        """§3.3: the mean of each patch is scored, and the class vectors are mixed by ``relu(bn(scores))``."""
        x = self.norm("block.match.norm", f) if "block.match.norm.weight" in self.weights else f
        scores = self.conv("block.match.score", mean_filter(x, max(1, f.shape[2] // 2), max(1, f.shape[3] // 2)))
        normalized = self.norm("block.maximizer.bn", scores)
        embedding = self.conv("block.values", normalized.clamp(min=0))
        if "block.shortcut.weight" in self.weights:
            f = self.conv("block.shortcut", mean_filter(f, 2, 2) if smooth_shortcut else f) + embedding
        else:
            f = torch.cat([f, embedding], 1)
        return f, normalized if softmax_on_bn else scores

    def __call__(self, x: Tensor, **block: bool) -> tuple[Tensor, Tensor | None]:
        """The logits, and the patch scores of a network with the block."""
        x = self.stem(x)
        for number in (1, 2, 3):
            x = self.stage(number, x)
        scores = None
        if "block.values.weight" in self.weights:
            x, scores = self.block(x, **block)
        if len(self.strides) == 4:
            x = self.stage(4, x)
        pooled = self.norm_relu("norm", x).sum((2, 3)) / (x.shape[2] * x.shape[3])
        return pooled @ self.weights["head.weight"].T + self.weights["head.bias"], scores


def mean_filter(f: Tensor, height: int, width: int) -> Tensor:
    """The mean around each pixel of what exists; the extra row or column of an even window is on the far side."""
    made = torch.empty_like(f)
    for i in range(f.shape[2]):
        for j in range(f.shape[3]):
            rows = slice(max(0, i - (height - 1) // 2), i + height // 2 + 1)
            columns = slice(max(0, j - (width - 1) // 2), j + width // 2 + 1)
            made[:, :, i, j] = f[:, :, rows, columns].mean((2, 3))
    return made


class ResNet(Reference):
    """RN20, RN26, RN38: pre-activation bottlenecks. The stem's BN-ReLU serves as the first unit's pre-activation."""

    def stem(self, x: Tensor) -> Tensor:
        return self.norm_relu("stem.1", self.conv("stem.0", x))

    def stage(self, number: int, x: Tensor) -> Tensor:
        unit, stride = 0, self.strides[number - 1]
        while f"stage{number}.{unit}.reduce.weight" in self.weights:
            at, first = f"stage{number}.{unit}", unit == 0
            f = x if number == 1 and first else self.norm_relu(f"{at}.preact", x)
            y = self.conv(f"{at}.reduce", f, stride if first else 1)
            y = self.conv(f"{at}.match", self.norm_relu(f"{at}.norm", y))
            y = self.conv(f"{at}.embed", self.norm_relu(f"{at}.maximizer", y))
            x = y + (self.conv(f"{at}.shortcut", x if self.raw_projection else f, stride) if first else x)
            unit += 1
        return x


class WideResNet(Reference):
    """WRN16-2: two units of two 3x3 convolutions a stage. The shortcuts of stage 4 are identities."""

    def stem(self, x: Tensor) -> Tensor:
        return self.conv("stem", x)

    def stage(self, number: int, x: Tensor) -> Tensor:
        for unit, stride in enumerate((self.strides[number - 1], 1)):
            at = f"stage{number}.{unit}"
            f = self.norm_relu(f"{at}.preact", x)
            y = self.conv(f"{at}.conv2", self.norm_relu(f"{at}.norm", self.conv(f"{at}.conv1", f, stride)))
            projected = unit == 0 and number < 4
            x = y + (self.conv(f"{at}.shortcut", x if self.raw_projection else f, stride) if projected else x)
        return x


class DenseNet(Reference):
    """DN100-BC: sixteen layers a stage, each appended to its input; a transition where the stride is 2."""

    def stem(self, x: Tensor) -> Tensor:
        return self.conv("stem", x)

    def stage(self, number: int, x: Tensor) -> Tensor:
        for layer in range(16):
            at = f"stage{number}.{layer}"
            y = self.conv(f"{at}.reduce", self.norm_relu(f"{at}.preact", x))
            x = torch.cat([x, self.conv(f"{at}.grow", self.norm_relu(f"{at}.norm", y))], 1)
        if self.strides[number - 1] == 1:
            return x
        y = self.conv(f"stage{number}.17", self.norm_relu(f"stage{number}.16", x))
        high, wide = y.shape[2] // 2 * 2, y.shape[3] // 2 * 2
        corners = [y[:, :, i:high:2, j:wide:2] for i in (0, 1) for j in (0, 1)]
        return sum(corners[1:], corners[0]) / 4
