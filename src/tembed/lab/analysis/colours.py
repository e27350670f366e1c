"""Class colours that readers with and without red-green blindness can tell apart, the same in every figure."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

FIRST = (
    *("#0072b2", "#e69f00", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#f0e442"),
    *("#5a3d00", "#222255", "#c7e9a0"),
)
"""Okabe and Ito's colours without black, which marks the zero vector, and three of our own that are far from them."""
STEPS = 9
"""Levels per channel of the candidates for further colours."""
DARKEST, LIGHTEST = 25.0, 92.0
"""Bounds on a class colour's lightness (CIELAB), which keep it distinct from black and from the white background."""

# Linear RGB as a dichromat sees it (Viénot, Brettel and Mollon 1999).
PROTAN = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
DEUTAN = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])

Colour = tuple[int, int, int]


def seen(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIELAB of colours ``(n, 3)`` from 0 to 1, seen with normal vision, protanopia, deuteranopia: ``(3, n, 3)``."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    views = np.stack([linear, linear @ PROTAN.T, linear @ DEUTAN.T])
    xyz = np.clip(views, 0, 1) @ TO_XYZ.T / TO_XYZ.sum(1)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


@cache
def class_colours(count: int) -> tuple[Colour, ...]:
    """``count`` colours: ten fixed ones, then each as far as possible from all before it in every kind of vision."""
    levels = np.linspace(0, 1, STEPS)
    candidates = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3)
    lightness = seen(candidates)[0, :, 0]
    candidates = candidates[(lightness > DARKEST) & (lightness < LIGHTEST)]
    chosen = [np.array([int(code[k : k + 2], 16) for k in (1, 3, 5)]) / 255 for code in FIRST[:count]]
    views = seen(candidates)
    room = np.full(len(candidates), np.inf)
    for number in range(count):
        if number >= len(chosen):
            chosen.append(candidates[room.argmax()])
        view = seen(chosen[number][None])
        room = np.minimum(room, np.linalg.norm(views - view, axis=-1).min(0))
    rounded = [np.rint(255 * colour).astype(int).tolist() for colour in chosen]
    return tuple((red, green, blue) for red, green, blue in rounded)
