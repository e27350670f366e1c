"""The design of the parts world: ten classes, the parts that each is built of, and its two super-classes.

Photographs do not say which patch shows a wing and which a wheel. Here the truth about every pixel is known, so that
what the paper reads off its pictures (§4.3: patches of a shared part lie between the classes that share it) can be
measured. Colour, position, scale, tilt, direction, background and clutter say nothing about the class.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tembed.common.errors import TembedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tembed.lab.data.image_set import ImageSet

SUPER_CLASSES: dict[str, tuple[str, ...]] = {
    "vehicles": ("plane", "car", "truck", "ship", "train"),
    "animals": ("bird", "fish", "cat", "dog", "horse"),
}

PARTS_OF: dict[str, tuple[str, ...]] = {
    "plane": ("wing", "fin", "panel", "window", "engine"),
    "car": ("panel", "window", "wheel", "roof"),
    "truck": ("panel", "window", "wheel", "cargo"),
    "ship": ("panel", "window", "chimney", "hull"),
    "train": ("panel", "window", "wheel", "chimney", "cowcatcher"),
    "bird": ("wing", "eye", "leg", "plumage", "beak"),
    "fish": ("fin", "eye", "scales"),
    "cat": ("eye", "leg", "fur", "tail", "pointed ear"),
    "dog": ("eye", "leg", "fur", "tail", "muzzle", "hanging ear"),
    "horse": ("eye", "leg", "fur", "tail", "muzzle", "pointed ear", "mane"),
}

CLASSES: tuple[str, ...] = tuple(PARTS_OF)
PARTS: tuple[str, ...] = tuple(dict.fromkeys(part for parts in PARTS_OF.values() for part in parts))
OWNERS: dict[str, tuple[str, ...]] = {
    part: tuple(name for name, parts in PARTS_OF.items() if part in parts) for part in PARTS
}
"""Part to the classes that have it."""

COUNT, SIDE = 12_000, 32


def generate(count: int = COUNT, seed: int = 0, size: int = SIDE) -> "ImageSet":
    """Draw ``count`` images of ``size`` x ``size`` pixels with their part maps.

    Image ``i`` depends only on (seed, i, size) and shows class ``i % 10``, so a longer set starts with the shorter one.
    """
    if count < 1:
        raise TembedError(f"`count` is {count}; it must be at least 1")
    return draw(range(count), seed=seed, size=size)


def draw(
    indices: Sequence[int] | Any, without: "Sequence[str] | NDArray[np.bool_]" = (), *, seed: int = 0, size: int = SIDE
) -> "ImageSet":
    """Draw the images at these positions of the world, without some parts.

    Everything else is the same as in the whole image: what lies behind a part is drawn in its place.

    Args:
        indices: integers ``(N,)``; image ``i`` shows class ``i % 10``.
        without: names of parts that all images lack; or booleans ``(N, parts)``, which say it for each image.
    """
    if size < 8:
        raise TembedError(f"`size` is {size}; it must be at least 8")
    import numpy as np

    from tembed.lab.data.parts.scenes import draw_images

    index = np.asarray(indices, dtype=np.int64)
    if not isinstance(without, np.ndarray):
        for part in without:
            if part not in PARTS:
                raise TembedError(f"`without` names {part!r}, which is no part; the parts are {', '.join(PARTS)}")
        without = np.array([[part in without for part in PARTS]] * len(index), dtype=bool).reshape(-1, len(PARTS))
    return draw_images(index, without, seed, size)
