"""How a submodule's output holds a feature map: ``(N, C, H, W)``, channels last, or tokens.

The block reads and writes ``(N, C, H, W)``. A `FeatureLayout` translates, and lets class and register tokens bypass the
block.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tembed.common.errors import TembedError

LAYOUTS = ("nchw", "nhwc", "tokens")
MOST_PREFIX_TOKENS = 8
"""A larger excess over a square is taken as a grid that is not square, rather than as class and register tokens."""


@dataclass(frozen=True)
class FeatureLayout:
    """The layout of one submodule's output.

    ``kind``: one of `LAYOUTS`. ``prefix``: the number of tokens before the grid. ``grid``: height and width of the
    grid of tokens; None means square.
    """

    kind: str
    prefix: int = 0
    grid: tuple[int, int] | None = None

    def to_map(self, value: Tensor) -> Tensor:
        """The part of the output that the block sees, as ``(N, C, H, W)``."""
        if self.kind == "nchw":
            return value
        if self.kind == "nhwc":
            return value.permute(0, 3, 1, 2)
        grid = self.grid_of(value.shape[1])
        return value[:, self.prefix :].unflatten(1, grid).permute(0, 3, 1, 2)

    def from_map(self, f: Tensor, value: Tensor) -> Tensor:
        """The output that replaces ``value``: the map ``f`` in this layout, after the prefix tokens of ``value``."""
        f = f.to(value.dtype)  # autocast may have lowered it
        if self.kind == "nchw":
            return f
        if self.kind == "nhwc":
            return f.permute(0, 2, 3, 1).contiguous()
        tokens = f.permute(0, 2, 3, 1).flatten(1, 2)
        return torch.cat([value[:, : self.prefix], tokens], 1) if self.prefix else tokens.contiguous()

    def grid_of(self, length: int) -> tuple[int, int]:
        """Height and width of the grid in a sequence of ``length`` tokens."""
        count = length - self.prefix
        if self.grid is not None:
            if math.prod(self.grid) != count:
                raise TembedError(
                    f"a sequence of {length} tokens with {self.prefix} prefix tokens does not have the `grid` "
                    f"{self.grid[0]}x{self.grid[1]}: give images of the size that it was attached for"
                )
            return self.grid
        side = math.isqrt(max(0, count))
        if side < 1 or side * side != count:
            raise TembedError(
                f"{count} tokens of a sequence of {length} are not a square: give `grid`, and `prefix_tokens` if "
                f"{self.prefix} is wrong"
            )
        return side, side

    def __str__(self) -> str:
        if self.kind != "tokens":
            return self.kind
        return f"tokens after {self.prefix} prefix tokens" if self.prefix else "tokens"


def find_layout(
    value: Any,
    image: tuple[int, int] | None,
    own_prefix: int | None = None,
    *,
    usual: str | None = None,
    layout: str = "auto",
    prefix_tokens: int | None = None,
    grid: tuple[int, int] | None = None,
) -> FeatureLayout | str:
    """The layout of a submodule's output, or why there is none.

    ``value``: the output, or its type if it is not a tensor. ``image``: height and width of the images of the dry run.
    ``own_prefix``: what the model says about its prefix tokens. ``usual``: the layout of the network's other maps, for
    a shape that does not tell its own. The others are the arguments of `attach`.
    """
    if not isinstance(value, Tensor):
        return f"it returns a {value.__name__ if isinstance(value, type) else type(value).__name__}, not a tensor"
    if not value.is_floating_point():
        return f"it returns {value.dtype}"
    if layout == "tokens" or (layout == "auto" and value.ndim == 3):
        return _tokens(value, image, own_prefix, prefix_tokens, grid)
    if value.ndim != 4:
        return f"its output has the shape {tuple(value.shape)}, which is not a map"
    if prefix_tokens or grid is not None:
        return "`prefix_tokens` and `grid` are for tokens, and its output is a map"
    if layout != "auto":
        return FeatureLayout(layout)
    first = _mismatch(value.shape[2], value.shape[3], image)
    last = _mismatch(value.shape[1], value.shape[2], image)
    if first == last or (first is not None and last is not None and min(first, last) > 0):
        if first is None:
            return FeatureLayout("nchw")
        if usual is not None:
            return FeatureLayout(usual)
        return f"its output {tuple(value.shape)} may have its channels first or last: give `layout`"
    return FeatureLayout("nhwc" if first is None or last == 0 else "nchw")


def _mismatch(height: int, width: int, image: tuple[int, int] | None) -> int | None:
    """How far these sides of a map are from the image's proportions, or None if they cannot be those of its map."""
    if image is None:
        image = (max(height, width), max(height, width))
    difference = abs(height * image[1] - width * image[0])
    rounding = sum(image) if image[0] != image[1] else 0  # each side may be rounded by less than one
    return difference if height <= image[0] and width <= image[1] and difference <= rounding else None


def _tokens(
    value: Tensor,
    image: tuple[int, int] | None,
    own_prefix: int | None,
    prefix_tokens: int | None,
    grid: tuple[int, int] | None,
) -> FeatureLayout | str:
    if value.ndim != 3:
        return f"its output has the shape {tuple(value.shape)}, which is not a sequence of tokens"
    length = value.shape[1]
    if grid is None and image is not None and image[0] != image[1]:
        return f"its {length} tokens of an image of {image[0]}x{image[1]} pixels are not a square: give `grid`"
    if prefix_tokens is not None:
        candidates = [prefix_tokens]
    elif grid is not None:
        candidates = [length - math.prod(grid) if own_prefix is None else own_prefix]
    else:
        # In front of the place where a model adds its prefix tokens, its own number does not hold.
        excess = length - math.isqrt(length) ** 2
        candidates = [own_prefix or 0, 0, excess if excess <= MOST_PREFIX_TOKENS else -1]
    for prefix in candidates:
        try:
            if prefix >= 0:
                found = FeatureLayout("tokens", prefix, grid)
                found.grid_of(length)
                return found
        except TembedError:
            continue
    what = "a square grid" if grid is None else f"a grid of {grid[0]}x{grid[1]}"
    count = "some" if prefix_tokens is None and own_prefix is None else candidates[0]
    return f"its {length} tokens are not {what} after {count} prefix tokens: give `prefix_tokens` and `grid`"
