"""Composes the pictures of the parts world: background, clutter, one object with its parts, noise."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from tembed.common.arrays import Int64, UInt8
from tembed.common.cores import cores
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.parts.bodies import BODIES
from tembed.lab.data.parts.canvas import Array, Canvas, Dice, Frame
from tembed.lab.data.parts.shapes import Brush, Paints
from tembed.lab.data.parts.world import CLASSES, PARTS

_CHUNK = 64  # images drawn together: few enough for their arrays to stay in the cache


def draw_images(index: Int64, without: NDArray[np.bool_], seed: int, size: int) -> ImageSet:
    """The images ``index``, of ``size`` x ``size`` pixels, with their part maps; image ``i`` shows class ``i % 10``.

    ``without``: ``(N, parts)``, the parts that each image lacks.
    """
    images = np.empty((len(index), size, size, 3), dtype=np.uint8)
    part_map = np.empty((len(index), size, size), dtype=np.uint8)
    labels = index % len(CLASSES)
    order = [np.flatnonzero(labels == label) for label in range(len(CLASSES))]
    chunks = [(label, which[k : k + _CHUNK]) for label, which in enumerate(order) for k in range(0, len(which), _CHUNK)]

    def fill(chunk: tuple[int, Int64]) -> None:
        label, which = chunk
        images[which], part_map[which] = _draw(CLASSES[label], index[which], without[which], seed, size)

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(fill, chunks))
    return ImageSet(
        pool=images,
        labels=torch.from_numpy(labels),
        classes=CLASSES,
        indices=torch.arange(len(index)),
        pool_part_map=part_map,
        parts=PARTS,
    )


def _draw(name: str, index: Int64, without: NDArray[np.bool_], seed: int, size: int) -> tuple[UInt8, UInt8]:
    """Draw these images of one class: background, clutter behind the object, the object, clutter in front, noise."""
    dice = Dice(seed, index)
    picture = Frame.of_image(len(index), size)
    light = dice.coin()  # a light object on a dark background, or the reverse
    behind = np.where(light > 0, dice.uniform(0.1, 0.4), dice.uniform(0.6, 0.9))
    front = np.where(light > 0, dice.uniform(0.55, 0.9), dice.uniform(0.15, 0.45))
    canvas = Canvas(PARTS, _background(dice, picture, behind), without)
    for _ in range(4):
        _clutter(dice, canvas, picture, dice.colour(behind + dice.uniform(-0.25, 0.25)), dice.uniform(0.1, 0.35))
    frame = picture.at(
        dice.uniform(-0.2, 0.2),
        dice.uniform(-0.2, 0.2),
        lean=dice.uniform(-0.16, 0.16),
        scale=dice.uniform(0.7, 1.02),
        flip_u=2 * dice.coin() - 1,
    )
    BODIES[name](Brush(canvas, Paints.draw(dice, front)), frame, dice)
    _clutter(dice, canvas, picture, dice.colour(dice.uniform(0.1, 0.9)), dice.uniform(0.08, 0.2))
    return canvas.finish(dice.uniform(-0.05, 0.05, (size, size))), canvas.part_map


def _background(dice: Dice, picture: Frame, lightness: Array) -> Array:
    """A gradient between two colours in a random direction: ``(B, 3, S, S)``."""
    near, far = dice.colour(lightness), dice.colour(lightness + dice.uniform(-0.15, 0.15))
    slope = picture.at(0.0, 0.0, lean=dice.uniform(-1, 1))
    blend = np.clip(0.5 + 0.5 * slope.u, 0, 1)[:, None]
    return near + blend * (far - near)


def _clutter(dice: Dice, canvas: Canvas, picture: Frame, colour: Array, radius: Array) -> None:
    """A disc, a bar or a wedge that belongs to no part."""
    f = picture.at(dice.uniform(-1, 1), dice.uniform(-1, 1), lean=dice.uniform(-1, 1), scale=radius)
    kind = dice.uniform()
    bar = f.box(-1.6, -0.4, 1.6, 0.4)
    wedge = f.polygon((-1.0, -1.0), (1.2, 0.0), (-1.0, 1.0))
    disc = f.ellipse(0.0, 0.0, 1.0, 0.8)
    canvas.paint(None, np.where(kind < 0.33, bar, np.where(kind < 0.67, wedge, disc)), colour)
