"""The design of the parts world: ten classes, the parts that each is built of, and its two super-classes.

Photographs do not say which patch shows a wing and which a wheel. Here the truth about every pixel is known, so that
what the paper reads off its pictures (§4.3: patches of a shared part lie between the classes that share it) can be
measured. Colour, position, scale, tilt, direction, background and clutter say nothing about the class.
"""

from typing import TYPE_CHECKING

from tembed.common.errors import TembedError

if TYPE_CHECKING:
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

COUNT, SIDE = 12_000, 32


def generate(count: int = COUNT, seed: int = 0, size: int = SIDE) -> "ImageSet":
    """Draw ``count`` images of ``size`` x ``size`` pixels with their part maps.

    Image ``i`` depends only on (seed, i, size) and shows class ``i % 10``, so a longer set starts with the shorter one.
    """
    if count < 1:
        raise TembedError(f"`count` is {count}; it must be at least 1")
    if size < 8:
        raise TembedError(f"`size` is {size}; it must be at least 8")
    from tembed.lab.data.parts.scenes import draw_images

    return draw_images(count, seed, size)
