"""The block: it matches each patch to the classes and writes a mixture of the class vectors (paper §3.3)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tembed import maximizers
from tembed.common.arrays import briefly
from tembed.common.errors import TembedError
from tembed.maximizers.bn_relu import BNReLU

CONCAT_VALUE_DIM = 192
"""Size of the class vectors in the concatenating form, DN100-Ours-C (appendix A)."""


class BlockSteps(NamedTuple):
    """What the block computes on a map ``(N, d, H, W)``, with ``C`` classes.

    ``features``: what the next stage reads, ``(N, out_channels, H, W)``. ``scores``: what every soft-max over the
    classes takes, ``(N, C, H, W)``. ``mixing``: the weights ``p`` of the class vectors, ``(N, C, H, W)``.
    ``embedding``: ``f'``, the mixture of the class vectors, ``(N, value_dim, H, W)``. The last two are None if the
    scores are not fed back (deep supervision), and ``scores`` as well if patches are not matched at all.
    """

    features: Tensor
    scores: Tensor | None
    mixing: Tensor | None
    embedding: Tensor | None

    def __repr__(self) -> str:
        return briefly("BlockSteps", **self._asdict())


def half_window(height: int, width: int) -> tuple[int, int]:
    """The paper's patch size: half the side of the map, 4x4 on the 8x8 maps of CIFAR."""
    return max(1, height // 2), max(1, width // 2)


def patch_mean(f: Tensor, window: Sequence[int]) -> Tensor:
    """Mean of the features in the window around each pixel, inside the map only: ``(N, d, H, W)`` to the same shape.

    A window covers ``(k - 1) // 2`` pixels before and ``k // 2`` after. It is a rectangle even where the border cuts
    it, so the mean over it is a mean over columns followed by a mean over rows: two products with small matrices,
    which are faster than pooling, especially in backward.
    """
    rows, columns = (_mean_matrix(f, side, k) for side, k in zip(f.shape[2:], window, strict=True))
    if not f.is_contiguous(memory_format=torch.channels_last):
        return rows @ f @ columns.T
    pixels = columns @ f.permute(0, 2, 3, 1)
    return (rows @ pixels.flatten(2)).view(pixels.shape).permute(0, 3, 1, 2)


def _mean_matrix(f: Tensor, side: int, window: int) -> Tensor:
    """The matrix ``(side, side)`` whose row ``i`` averages from ``i - (window - 1) // 2`` to ``i + window // 2``."""
    index = torch.arange(side, device=f.device)
    offset = index - index[:, None]
    covered = (offset >= -((window - 1) // 2)) & (offset <= window // 2)
    return covered.to(f.dtype) / covered.sum(1, keepdim=True)


class UnitConv2d(nn.Conv2d):
    """A 1x1 convolution without bias whose kernels have unit length, times one learned scale."""

    def __init__(self, channels: int, out_channels: int, scale: float):
        super().__init__(channels, out_channels, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor(scale))

    def kernels(self) -> Tensor:
        """The kernels that it applies, ``(out_channels, channels, 1, 1)``."""
        return self.scale * functional.normalize(self.weight, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.kernels())


class PatchScores(nn.Module):
    """Class scores of the patch at each pixel, ``a = alpha^T x_g + beta`` (§3.3): ``(N, d, H, W)`` to ``(N, C, H, W)``.

    The default window is half the map that it is called with. ``cosine``: the cosine between the patch's mean and each
    template, times a learned scale that starts at 3.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        norm_before_pool: bool = False,
        window: int | tuple[int, int] | None = None,
        cosine: bool = False,
    ):
        super().__init__()
        self.window = (window, window) if isinstance(window, int) else window
        if self.window is not None and (len(self.window) != 2 or min(self.window) < 1):
            raise TembedError(f"`window` is {window!r}; it must be a positive number, or a height and a width")
        _check_positive(channels=channels, num_classes=num_classes)
        self.norm = nn.BatchNorm2d(channels) if norm_before_pool else nn.Identity()
        self.score = UnitConv2d(channels, num_classes, 3.0) if cosine else nn.Conv2d(channels, num_classes, 1)

    def forward(self, f: Tensor) -> Tensor:
        if isinstance(self.score, UnitConv2d):
            mean = patch_mean(self.norm(f), self.window or half_window(*f.shape[2:]))
            return self.score(functional.normalize(mean, dim=1))
        # The mean and the linear map commute, so the scores are averaged: there are fewer classes than channels.
        return patch_mean(self.score(self.norm(f)), self.window or half_window(*f.shape[2:]))


class DeepSupervision(nn.Module):
    """The ``-aux`` control: patches are scored and the scores are trained, but nothing is fed back (§4.2)."""

    def __init__(self, channels: int, num_classes: int, *, window: int | tuple[int, int] | None = None):
        super().__init__()
        self.out_channels = channels
        self.match = PatchScores(channels, num_classes, window=window)
        initialize(self)

    def steps(self, f: Tensor) -> BlockSteps:
        return BlockSteps(f, self.match(f), None, None)

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        return f, self.match(f)


class ShortcutOnly(nn.Module):
    """The ``-1x1`` control: the convolution of the block's shortcut, and nothing else. No patch is scored."""

    def __init__(self, channels: int, num_classes: int, *, smooth_shortcut: bool = False):
        super().__init__()
        self.out_channels = channels
        self.smooth_shortcut = smooth_shortcut
        self.shortcut = nn.Conv2d(channels, channels, 1, bias=False)
        initialize(self)

    def steps(self, f: Tensor) -> BlockSteps:
        return BlockSteps(self.shortcut(patch_mean(f, (2, 2)) if self.smooth_shortcut else f), None, None, None)

    def forward(self, f: Tensor) -> tuple[Tensor, None]:
        return self.steps(f).features, None


class FeatureEmbedding(nn.Module):
    """Feature embedding by template matching, as a residual block (§3.3, Fig. 2).

    Maps ``(N, channels, H, W)`` to ``(features, scores)``: the map for the next stage, ``(N, out_channels, H, W)``,
    and the class scores of every patch, ``(N, num_classes, H, W)``, for `EmbeddingLoss`.

    Args:
        channels: ``d``, the channels of the input.
        num_classes: ``C``, the classes that patches are matched to.
        concat: write ``cat[f, f']`` instead of ``conv1x1(f) + f'`` (DN100-Ours-C).
        value_dim: size of the class vectors; by default ``channels``, or 192 with ``concat``.
        norm_before_pool: normalise the input of the score branch (WRN and DN).
        softmax_on_bn: return the scores after batch normalisation (CIFAR-10).
        smooth_shortcut: 2x2 average pool before the shortcut's convolution (RN and WRN on CIFAR-10).
        norm_shortcut: batch-normalise the input of the shortcut's convolution. Not in the paper: it keeps ``f`` from
            growing until ``f'`` is negligible beside it (docs/recipes.md).
        bias: give the convolutions of the class vectors and the shortcut a bias (DN).
        window: side of a patch, or its height and width; by default half the map.
        maximizer: what turns scores into mixing weights: a name of `tembed.maximizers.names`, or a module.
        form: ``"linear"``, the paper's; or ``"cosine"``, as two of its authors build it later (letKD-framework):
            scores are cosines, the mixing weights and the kernels that mix have unit length, both with a learned
            scale, and the shortcut is the identity.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        concat: bool = False,
        value_dim: int | None = None,
        norm_before_pool: bool = False,
        softmax_on_bn: bool = False,
        smooth_shortcut: bool = False,
        norm_shortcut: bool = False,
        bias: bool = False,
        window: int | tuple[int, int] | None = None,
        maximizer: str | nn.Module = "bn-relu",
        form: Literal["linear", "cosine"] = "linear",
    ):
        super().__init__()
        if form not in ("linear", "cosine"):
            raise TembedError(f"`form` is {form!r}; it must be 'linear' or 'cosine'")
        self.form = form
        if form == "cosine" and (
            concat or smooth_shortcut or norm_shortcut or bias or value_dim not in (None, channels)
        ):
            raise TembedError(
                "the form 'cosine' adds f' to its input: leave out `concat`, `value_dim`, `bias`, `smooth_shortcut` "
                "and `norm_shortcut`"
            )
        for name, given in (("smooth_shortcut", smooth_shortcut), ("norm_shortcut", norm_shortcut)):
            if concat and given:
                raise TembedError(
                    f"`{name}` comes before the convolution of the shortcut, and with `concat` there is none: leave "
                    "one of them out"
                )
        if value_dim is None:
            value_dim = CONCAT_VALUE_DIM if concat else channels
        _check_positive(channels=channels, num_classes=num_classes, value_dim=value_dim)
        self.out_channels = channels + value_dim if concat else value_dim
        self.softmax_on_bn = softmax_on_bn
        self.smooth_shortcut = smooth_shortcut
        self.match = PatchScores(
            channels, num_classes, norm_before_pool=norm_before_pool, window=window, cosine=form == "cosine"
        )
        self.maximizer = maximizers.create(maximizer, num_classes) if isinstance(maximizer, str) else maximizer
        if softmax_on_bn and not isinstance(self.maximizer, BNReLU):
            raise TembedError(
                "`softmax_on_bn` takes the scores from the normalisation of BN-ReLU: it needs the maximizer 'bn-relu'"
            )
        if form == "cosine":
            self.values: nn.Conv2d = UnitConv2d(num_classes, value_dim, 1.0)
            self.shortcut: nn.Module | None = nn.Identity()
        else:
            self.values = nn.Conv2d(num_classes, value_dim, 1, bias=bias)
            self.shortcut = None if concat else nn.Conv2d(channels, value_dim, 1, bias=bias)
        self.shortcut_norm = nn.BatchNorm2d(channels) if norm_shortcut else None
        initialize(self)

    def steps(self, f: Tensor) -> BlockSteps:
        """All quantities of the block by their names in the paper."""
        scores = self.match(f)
        if self.softmax_on_bn:
            mixing, scores = self.maximizer(scores, with_normalized=True)
        else:
            mixing = self.maximizer(scores)
        if self.form == "cosine":
            mixing = functional.normalize(mixing, dim=1)
        embedding = self.values(mixing)
        return BlockSteps(self._join(f, embedding), scores, mixing, embedding)

    def class_vectors(self) -> Tensor:
        """The vectors that ``f'`` is a mixture of, ``(C, value_dim)``."""
        weight = self.values.kernels() if isinstance(self.values, UnitConv2d) else self.values.weight
        return weight.flatten(1).T

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        steps = self.steps(f)
        assert steps.scores is not None
        return steps.features, steps.scores

    def _join(self, f: Tensor, embedding: Tensor) -> Tensor:
        if self.shortcut is None:
            return torch.cat([f, embedding], dim=1)
        if self.shortcut_norm is not None:
            f = self.shortcut_norm(f)
        if self.smooth_shortcut:
            f = patch_mean(f, (2, 2))
        return self.shortcut(f) + embedding


def shortcut_of(features: Tensor, embedding: Tensor) -> Tensor:
    """What the block writes besides ``f'``: the other channels if it concatenates, else the other summand."""
    others = features.shape[1] - embedding.shape[1]
    return features[:, :others] if others else features - embedding


@contextmanager
def changed_mixing(block: FeatureEmbedding, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the ``with``, the class vectors are mixed with changed weights. A bias of the values stays (DN)."""
    hook = block.values.register_forward_pre_hook(lambda module, inputs: (change(inputs[0]),))
    try:
        yield
    finally:
        hook.remove()


def initialize(module: nn.Module) -> None:
    """He's normal initialisation (fan-in) for convolutions, and zero biases. The rest keeps torch's initialisation."""
    for child in module.modules():
        if isinstance(child, nn.Conv2d) and not child.weight.is_meta:  # without memory, torch would load its compiler
            nn.init.kaiming_normal_(child.weight, nonlinearity="relu")
            if child.bias is not None:
                nn.init.zeros_(child.bias)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise TembedError(f"`{name}` is {size}; it must be at least 1")
