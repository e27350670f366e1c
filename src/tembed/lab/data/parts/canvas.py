"""A small batched rasteriser: random numbers, frames of reference, shapes, paint.

One call draws one shape into every image of a batch. The same seed gives the same bytes on every machine and with every
version of NumPy: only operations that IEEE 754 rounds exactly are used (sums, products, quotients, square roots,
comparisons), random numbers come from an integer hash, and no sum runs over an axis.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32
Number = float | Array  # one value for the whole batch, or one per image: (B, 1, 1)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words; each input bit changes about half of the output bits (SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class Dice:
    """Random numbers for a batch: the n-th draw for image ``i`` depends only on (seed, i, n)."""

    def __init__(self, seed: int, index: NDArray[np.int64]) -> None:
        start = mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
        self.key = mix((start ^ index.astype(np.uint64)) * _GOLDEN).reshape(-1, 1, 1)
        self.draws = 0

    def _bits(self, shape: tuple[int, int]) -> NDArray[np.uint64]:
        position = np.arange(shape[0] * shape[1], dtype=np.uint64).reshape(1, *shape)
        self.draws += 1
        return mix(mix(self.key + np.uint64(self.draws)) + position * _GOLDEN)

    def uniform(self, low: float = 0.0, high: float = 1.0, shape: tuple[int, int] = (1, 1)) -> Array:
        """Uniform on [low, high), of shape ``(B, *shape)``."""
        unit = (self._bits(shape) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return low + np.float32(high - low) * unit

    def coin(self, probability: float = 0.5) -> Array:
        """1 with this probability, else 0."""
        return (self.uniform() < probability).astype(np.float32)

    def colour(self, lightness: Number, vividness: float = 0.35) -> Array:
        """A colour of this lightness and a random hue: ``(B, 3, 1, 1)``."""
        red, green, blue = (self.uniform(-vividness, vividness) for _ in range(3))
        grey = (red + green + blue) / 3
        return np.stack([np.clip(lightness + c - grey, 0, 1) for c in (red, green, blue)], axis=1)


def _float32(number: Number) -> Array:
    """``(B, 1, 1)`` in float32, because versions of NumPy differ in how they round plain numbers and scalars."""
    return np.asarray(number, dtype=np.float32).reshape(-1, 1, 1)


def wave(x: Array) -> Array:
    """A triangle wave of period 1 between -1 and 1."""
    return 4 * np.abs(x - np.floor(x + np.float32(0.5))) - 1


@dataclass(frozen=True)
class Frame:
    """The coordinates of an object at every pixel: ``u`` to its front, ``v`` down, and ``unit``, the pixels per unit.

    Every shape is a coverage map ``(B, S, S)``: the share of each pixel that it covers, computed from the distance
    between the pixel and the edge of the shape.
    """

    u: Array
    v: Array
    unit: Array

    @staticmethod
    def of_image(count: int, size: int) -> "Frame":
        """The frame of the image itself: the centre is (0, 0), the edges are at -1 and 1."""
        axis = (np.arange(size, dtype=np.float32) * 2 + 1) / size - 1
        u = np.broadcast_to(axis, (count, size, size))
        v = np.broadcast_to(axis[:, None], (count, size, size))
        return Frame(u, v, np.full((count, 1, 1), size / 2, dtype=np.float32))

    def at(
        self,
        u: Number,
        v: Number,
        lean: Number = 0.0,
        scale: Number = 1.0,
        flip_u: Number = 1.0,
        flip_v: Number = 1.0,
    ) -> "Frame":
        """A frame with its origin at (u, v), rotated by ``2 * arctan(lean)``."""
        u, v, lean, scale, flip_u, flip_v = map(_float32, (u, v, lean, scale, flip_u, flip_v))
        norm = 1 + lean * lean
        cos, sin = (1 - lean * lean) / norm, 2 * lean / norm
        du, dv = self.u - u, self.v - v
        return Frame(
            (du * cos + dv * sin) * (flip_u / scale),
            (dv * cos - du * sin) * (flip_v / scale),
            self.unit * scale,
        )

    def _cover(self, distance: Array) -> Array:
        return np.clip(np.float32(0.5) - distance * self.unit, 0, 1)

    def ellipse(self, u: Number, v: Number, ru: Number, rv: Number) -> Array:
        u, v, ru, rv = map(_float32, (u, v, ru, rv))
        radius = np.sqrt(((self.u - u) * (1 / ru)) ** 2 + ((self.v - v) * (1 / rv)) ** 2)
        return self._cover((radius - 1) * np.minimum(ru, rv))

    def polygon(self, *corners: tuple[Number, Number]) -> Array:
        """A convex polygon with its corners in clockwise order."""
        edges = []
        for (u0, v0), (u1, v1) in zip(corners, (*corners[1:], corners[0]), strict=True):
            du, dv = _float32(u1 - u0), _float32(v1 - v0)
            length = np.sqrt(du * du + dv * dv)
            edges.append((self.u - _float32(u0)) * (dv / length) - (self.v - _float32(v0)) * (du / length))
        return self._cover(np.maximum.reduce(edges))

    def box(self, left: Number, top: Number, right: Number, bottom: Number) -> Array:
        left, top, right, bottom = map(_float32, (left, top, right, bottom))
        across = np.abs(self.u - (left + right) / 2) - (right - left) / 2
        along = np.abs(self.v - (top + bottom) / 2) - (bottom - top) / 2
        return self._cover(np.maximum(across, along))

    def rod(self, u0: Number, v0: Number, u1: Number, v1: Number, radius: Number) -> Array:
        """A stroke with round ends."""
        u0, v0, u1, v1, radius = map(_float32, (u0, v0, u1, v1, radius))
        du, dv = u1 - u0, v1 - v0
        pu, pv = self.u - u0, self.v - v0
        along = np.clip((pu * du + pv * dv) / (du * du + dv * dv), 0, 1)
        return self._cover(np.sqrt((pu - along * du) ** 2 + (pv - along * dv) ** 2) - radius)


@dataclass
class Canvas:
    """A batch of pictures in progress, and the part that each pixel shows."""

    parts: tuple[str, ...]
    image: Array  # (B, 3, S, S) in [0, 1]
    without: NDArray[np.bool_]  # (B, parts): what is not painted
    part_map: NDArray[np.uint8] = field(init=False)  # (B, S, S)

    def __post_init__(self) -> None:
        self.part_map = np.zeros((len(self.image), *self.image.shape[2:]), dtype=np.uint8)

    def paint(self, part: str | None, cover: Array, colour: Array, shade: Array | None = None) -> None:
        """Paint a shape over the picture; a pixel shows the part of the last shape that covers at least half of it.

        A part that is left out leaves what lies behind it. All random numbers were drawn before: nothing else changes.
        """
        number = 0 if part is None else self.parts.index(part) + 1
        if number:
            cover = np.where(self.without[:, number - 1, None, None], np.float32(0), cover)
        ink = colour if shade is None else np.clip(colour + shade[:, None], 0, 1)
        self.image += cover[:, None] * (ink - self.image)
        self.part_map[cover >= 0.5] = number

    def finish(self, noise: Array) -> NDArray[np.uint8]:
        """The noisy pictures as bytes, channels last: ``(B, S, S, 3)``."""
        noisy = np.clip(self.image + noise[:, None], 0, 1)
        return np.ascontiguousarray((noisy * 255 + np.float32(0.5)).astype(np.uint8).transpose(0, 2, 3, 1))
