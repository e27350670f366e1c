"""What each part of the parts world looks like: one method per part, for all classes that have it.

Classes that share a part call the same method, so a patch that shows only this part cannot tell them apart.
"""

from dataclasses import dataclass

import numpy as np

from tembed.lab.data.parts.canvas import Array, Canvas, Dice, Frame, Number, wave


@dataclass(frozen=True)
class Paints:
    """The colours and the texture contrast of each image. They do not depend on the class."""

    coat: Array  # most of the object
    trim: Array  # smaller parts
    dark: Array
    pale: Array
    glass: Array  # stands out against the coat
    grain: Array  # (B, 1, 1): contrast of the textures

    @staticmethod
    def draw(dice: Dice, lightness: Array) -> "Paints":
        """Colours for objects of this lightness; only the lightness depends on the background."""
        return Paints(
            coat=dice.colour(lightness),
            trim=dice.colour(lightness + dice.uniform(-0.2, 0.2)),
            dark=dice.colour(dice.uniform(0.02, 0.2), vividness=0.1),
            pale=dice.colour(dice.uniform(0.8, 1.0), vividness=0.1),
            glass=dice.colour(np.where(lightness > 0.5, lightness - 0.45, lightness + 0.45)),
            grain=dice.uniform(0.1, 0.25),
        )


@dataclass(frozen=True)
class Brush:
    """Draws the parts on a canvas with the paints of each image."""

    canvas: Canvas
    paints: Paints

    # --- textures that fill any outline

    def fur(self, f: Frame, cover: Array) -> None:
        """Zigzag hatching."""
        hatch = wave(2.8 * f.u + 1.2 * f.v + 0.35 * wave(2.5 * f.v))
        self.canvas.paint("fur", cover, self.paints.coat, self.paints.grain * hatch)

    def plumage(self, f: Frame, cover: Array) -> None:
        """Wavy rows of feathers along the body."""
        rows = wave(3.2 * f.v + 0.3 * wave(1.6 * f.u))
        self.canvas.paint("plumage", cover, self.paints.coat, self.paints.grain * rows)

    def scales(self, f: Frame, cover: Array) -> None:
        """A lattice of diamonds."""
        lattice = wave(1.7 * (f.u + f.v)) * wave(1.7 * (f.u - f.v))
        self.canvas.paint("scales", cover, self.paints.coat, 1.4 * self.paints.grain * lattice)

    def panel(self, f: Frame, cover: Array) -> None:
        """Smooth metal, lit from above."""
        self.canvas.paint("panel", cover, self.paints.coat, -self.paints.grain * np.clip(1.5 * f.v, -1, 1))

    def cargo(self, f: Frame, cover: Array) -> None:
        """A container's upright ribs."""
        self.canvas.paint("cargo", cover, self.paints.trim, self.paints.grain * wave(3.2 * f.u))

    # --- limbs: outline and texture together

    def wing(self, f: Frame) -> None:
        """A swept blade that starts at the origin, with ribs across it and a dark rear edge."""
        blade = f.polygon((-0.32, 0.0), (0.3, 0.0), (-0.25, 0.9), (-0.5, 0.9))
        rear = np.clip(-2.2 * (f.u + 0.35 * f.v) - 0.2, 0, 1)
        shade = self.paints.grain * (0.7 * wave(3.0 * f.v) - 1.3 * rear)
        self.canvas.paint("wing", blade, self.paints.trim, shade)

    def fin(self, f: Frame) -> None:
        """A triangle that widens backwards from the origin, with rays."""
        sail = f.polygon((0.12, 0.0), (-0.5, 0.3), (-0.42, -0.3))
        slope = f.v / (np.float32(0.35) + np.abs(f.u))
        self.canvas.paint("fin", sail, self.paints.trim, 1.3 * self.paints.grain * wave(2.6 * slope))

    def leg(self, f: Frame, u: Number, v: Number, length: Number, thick: float = 0.07, step: Number = 0.0) -> None:
        limb = f.rod(u, v, u + step, v + length, thick)
        self.canvas.paint("leg", limb, self.paints.coat * np.float32(0.62))

    def tail(self, f: Frame, u: Number, v: Number, du: Number, dv: Number) -> None:
        """A bushy stroke, darker than the body."""
        self.canvas.paint("tail", f.rod(u, v, u + du, v + dv, 0.1), self.paints.coat * np.float32(0.8))

    # --- small marks

    def wheel(self, f: Frame, u: Number, v: Number, r: Number) -> None:
        """A dark tyre around a pale hub."""
        self.canvas.paint("wheel", f.ellipse(u, v, r, r), self.paints.dark)
        self.canvas.paint("wheel", f.ellipse(u, v, 0.45 * r, 0.45 * r), self.paints.pale)

    def window(self, f: Frame, left: Number, top: Number, right: Number, bottom: Number) -> None:
        self.canvas.paint("window", f.box(left, top, right, bottom), self.paints.glass)

    def eye(self, f: Frame, u: Number, v: Number, r: float = 0.14) -> None:
        """A dark pupil in a pale ring."""
        self.canvas.paint("eye", f.ellipse(u, v, r, r), self.paints.pale)
        self.canvas.paint("eye", f.ellipse(u + 0.03, v, 0.5 * r, 0.5 * r), self.paints.dark)

    def chimney(self, f: Frame, u: Number, bottom: Number, height: Number) -> None:
        """A funnel with a dark rim."""
        top = bottom - height
        self.canvas.paint("chimney", f.box(u - 0.12, top, u + 0.12, bottom), self.paints.trim)
        self.canvas.paint("chimney", f.box(u - 0.16, top, u + 0.16, top + 0.13), self.paints.dark)

    def beak(self, f: Frame, u: Number, v: Number) -> None:
        self.canvas.paint("beak", f.polygon((u, v - 0.16), (u + 0.42, v + 0.04), (u, v + 0.16)), self.paints.glass)

    def pointed_ear(self, f: Frame, u: Number, v: Number) -> None:
        ear = f.polygon((u - 0.15, v), (u - 0.03, v - 0.36), (u + 0.15, v))
        self.canvas.paint("pointed ear", ear, self.paints.coat * np.float32(0.75))

    def hanging_ear(self, f: Frame, u: Number, v: Number) -> None:
        self.canvas.paint("hanging ear", f.ellipse(u, v + 0.2, 0.12, 0.27), self.paints.coat * np.float32(0.5))

    def muzzle(self, f: Frame, u: Number, v: Number) -> None:
        """A blunt snout with a dark tip."""
        self.canvas.paint("muzzle", f.rod(u, v, u + 0.22, v + 0.04, 0.13), self.paints.trim)
        self.canvas.paint("muzzle", f.ellipse(u + 0.31, v + 0.0, 0.07, 0.07), self.paints.dark)

    def mane(self, f: Frame, u0: Number, v0: Number, u1: Number, v1: Number) -> None:
        """Strands across a stroke."""
        strands = 1.2 * self.paints.grain * wave(3.0 * (f.u + f.v))
        self.canvas.paint("mane", f.rod(u0, v0, u1, v1, 0.13), self.paints.trim * np.float32(0.6), strands)

    def hull(self, f: Frame) -> None:
        """The side of a boat: wider at the deck, with a dark keel."""
        side = f.polygon((-0.9, 0.1), (1.0, 0.1), (0.65, 0.6), (-0.7, 0.6))
        keel = -1.5 * self.paints.grain * np.clip((f.v - np.float32(0.35)) * 8, 0, 1)
        self.canvas.paint("hull", side, self.paints.trim, keel)

    def roof(self, f: Frame, u: Number, v: Number) -> None:
        """A car's dome."""
        dome = f.polygon((u - 0.3, v - 0.38), (u + 0.22, v - 0.38), (u + 0.5, v + 0.02), (u - 0.5, v + 0.02))
        self.canvas.paint("roof", dome, self.paints.coat * np.float32(0.85))

    def engine(self, f: Frame, u: Number, v: Number) -> None:
        """A jet pod with a dark mouth."""
        self.canvas.paint("engine", f.rod(u, v, u + 0.26, v, 0.12), self.paints.trim * np.float32(0.8))
        self.canvas.paint("engine", f.ellipse(u + 0.32, v, 0.07, 0.12), self.paints.dark)

    def cowcatcher(self, f: Frame, u: Number, v: Number) -> None:
        """A locomotive's barred plough."""
        plough = f.polygon((u, v - 0.34), (u + 0.38, v + 0.14), (u, v + 0.14))
        self.canvas.paint("cowcatcher", plough, self.paints.dark, 0.15 + 0.2 * wave(5.0 * f.u))
