"""Where each class of the parts world has its parts.

An object faces right and extends about one unit from its centre to each end. Its frame rotates, scales, flips and moves
it. Later shapes cover earlier ones.
"""

from collections.abc import Callable

from tembed.lab.data.parts.canvas import Array, Dice, Frame
from tembed.lab.data.parts.shapes import Brush

Body = Callable[[Brush, Frame, Dice], None]


def _wing_frame(f: Frame, dice: Dice) -> Frame:
    """The frame of the wing of a plane or bird: raised or lowered, more or less swept."""
    side = 2 * dice.coin() - 1
    return f.at(
        dice.uniform(-0.1, 0.15),
        0.05 * side,
        lean=dice.uniform(-0.2, 0.15),
        flip_v=side,
        scale=dice.uniform(0.85, 1.1),
    )


def plane(b: Brush, f: Frame, dice: Dice) -> None:
    nose = dice.uniform(0.65, 0.85)
    b.fin(f.at(-0.55, -0.1, lean=0.4, scale=1.15))
    b.panel(f, f.rod(-0.8, 0.0, nose, 0.0, 0.2))
    for k in range(3):
        u = nose - 0.15 - 0.32 * k
        b.window(f, u, -0.13, u + 0.17, 0.04)
    b.engine(f, dice.uniform(0.2, 0.35), dice.uniform(0.24, 0.32))
    b.wing(_wing_frame(f, dice))


def bird(b: Brush, f: Frame, dice: Dice) -> None:
    head = dice.uniform(-0.35, -0.15)
    for u in (-0.15, 0.12):
        b.leg(f, u, 0.25, dice.uniform(0.35, 0.5), thick=0.06, step=dice.uniform(-0.15, 0.15))
    b.plumage(f, f.polygon((-1.0, -0.12), (-0.3, -0.15), (-0.3, 0.25), (-0.95, 0.15)))
    b.plumage(f, f.ellipse(-0.05, 0.05, 0.52, 0.33))
    b.beak(f, 0.7, head)
    b.plumage(f, f.ellipse(0.52, head, 0.28, 0.27))
    b.eye(f, 0.58, head - 0.04)
    b.wing(_wing_frame(f, dice))


def fish(b: Brush, f: Frame, dice: Dice) -> None:
    depth = dice.uniform(0.36, 0.5)
    b.fin(f.at(-0.5, 0.0, scale=dice.uniform(1.0, 1.25)))
    b.fin(f.at(dice.uniform(-0.05, 0.2), 0.15 - depth, lean=0.4, scale=1.05))
    b.scales(f, f.ellipse(0.15, 0.0, 0.75, depth))
    b.eye(f, 0.6, -0.1)


def cat(b: Brush, f: Frame, dice: Dice) -> None:
    head = dice.uniform(-0.4, -0.2)
    _four_legs(b, f, dice, dice.uniform(0.4, 0.5))
    b.tail(f, -0.6, 0.0, dice.uniform(-0.35, -0.1), dice.uniform(-0.7, -0.45))
    b.fur(f, f.ellipse(-0.1, 0.08, 0.6, 0.3))
    b.pointed_ear(f, 0.38, head - 0.2)
    b.pointed_ear(f, 0.72, head - 0.2)
    b.fur(f, f.ellipse(0.55, head, 0.36, 0.33))
    b.eye(f, 0.64, head - 0.03)


def dog(b: Brush, f: Frame, dice: Dice) -> None:
    head = dice.uniform(-0.45, -0.25)
    _four_legs(b, f, dice, dice.uniform(0.45, 0.55))
    b.tail(f, -0.6, -0.05, dice.uniform(-0.4, -0.2), dice.uniform(-0.5, 0.1))
    b.fur(f, f.ellipse(-0.1, 0.05, 0.6, 0.28))
    b.muzzle(f, 0.68, head + 0.1)
    b.fur(f, f.ellipse(0.48, head, 0.3, 0.28))
    b.hanging_ear(f, 0.33, head - 0.15)
    b.eye(f, 0.6, head - 0.08)


def horse(b: Brush, f: Frame, dice: Dice) -> None:
    head = dice.uniform(-0.7, -0.5)
    _four_legs(b, f, dice, dice.uniform(0.6, 0.7))
    b.tail(f, -0.68, -0.1, dice.uniform(-0.25, -0.1), dice.uniform(0.4, 0.55))
    b.fur(f, f.ellipse(-0.12, 0.0, 0.6, 0.27))
    b.mane(f, 0.2, -0.3, 0.36, head - 0.05)
    b.fur(f, f.rod(0.3, -0.05, 0.52, head + 0.1, 0.17))
    b.pointed_ear(f, 0.5, head - 0.08)
    b.muzzle(f, 0.75, head + 0.16)
    b.fur(f, f.rod(0.54, head + 0.05, 0.72, head + 0.14, 0.18))
    b.eye(f, 0.6, head + 0.03)


def _four_legs(b: Brush, f: Frame, dice: Dice, length: Array) -> None:
    for u in (-0.55, -0.35, 0.15, 0.35):
        b.leg(f, u, 0.2, length, thick=0.08, step=dice.uniform(-0.12, 0.12))


def car(b: Brush, f: Frame, dice: Dice) -> None:
    cabin = dice.uniform(-0.25, 0.05)
    b.roof(f, cabin, -0.12)
    b.window(f, cabin - 0.28, -0.4, cabin - 0.04, -0.14)
    b.window(f, cabin + 0.05, -0.4, cabin + 0.27, -0.14)
    b.panel(f, f.rod(-0.75, 0.08, 0.75, 0.12, 0.24))
    radius = dice.uniform(0.2, 0.27)
    for u in (dice.uniform(-0.6, -0.45), dice.uniform(0.45, 0.6)):
        b.wheel(f, u, 0.32, radius)


def truck(b: Brush, f: Frame, dice: Dice) -> None:
    radius, join = dice.uniform(0.2, 0.27), dice.uniform(0.2, 0.35)
    b.cargo(f, f.box(-0.95, dice.uniform(-0.65, -0.45), join, 0.25))
    b.panel(f, f.polygon((join + 0.05, -0.35), (0.75, -0.35), (0.95, 0.0), (0.95, 0.28), (join + 0.05, 0.28)))
    b.window(f, join + 0.15, -0.25, 0.74, 0.0)
    for u in (-0.65, dice.uniform(-0.3, -0.1), 0.62):
        b.wheel(f, u, 0.34, radius)


def ship(b: Brush, f: Frame, dice: Dice) -> None:
    left, top = dice.uniform(-0.65, -0.5), dice.uniform(-0.35, -0.25)
    b.chimney(f, dice.uniform(-0.35, 0.05), top + 0.03, dice.uniform(0.4, 0.5))
    b.panel(f, f.box(left, top, left + 0.95, 0.12))
    for k in range(3):
        u = left + 0.12 + 0.27 * k
        b.window(f, u, top + 0.12, u + 0.17, top + 0.3)
    b.hull(f)


def train(b: Brush, f: Frame, dice: Dice) -> None:
    b.chimney(f, dice.uniform(0.35, 0.55), -0.12, dice.uniform(0.42, 0.5))
    b.cowcatcher(f, 0.7, 0.4)
    b.panel(f, f.rod(-0.4, 0.05, 0.6, 0.05, 0.24))
    b.panel(f, f.box(-0.9, -0.55, -0.25, 0.3))
    b.window(f, -0.75, -0.42, -0.4, -0.12)
    radius = dice.uniform(0.17, 0.22)
    for u in (-0.65, -0.2, 0.22, 0.6):
        b.wheel(f, u, 0.36, radius)


BODIES: dict[str, Body] = {
    body.__name__: body for body in (plane, car, truck, ship, train, bird, fish, cat, dog, horse)
}
