"""What can be asked for to compute on."""

from typing import Literal

Accelerator = Literal["auto", "cpu", "cuda", "mps"]
"""``cuda`` is a GPU of Nvidia or AMD, ``mps`` that of a Mac, and ``auto`` a GPU if there is one, else the CPU."""
