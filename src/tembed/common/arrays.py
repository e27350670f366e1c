"""Types that several packages use, and short descriptions of numbers, arrays and tensors."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Int64 = NDArray[np.int64]
Floats = NDArray[np.float32]
Triple = tuple[float, float, float]
"""A number for each of red, green and blue."""
Fit = Literal["crop", "pad", "stretch"]
"""How an oblong picture becomes a square: keep its centre, pad it with grey, or stretch it."""


def probability(p: float) -> str:
    """A probability with two decimals, or with four if it is below 0.01, as with many classes."""
    return f"{p:.4f}" if 0.00005 <= p < 0.01 else f"{p:.2f}"


def brief(value: Any) -> str:
    """A value on one line: an array or tensor as its type and shape, a long collection as its length."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, tuple | list | dict | set) and len(repr(value)) > 60:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)


def briefly(name: str, **fields: Any) -> str:
    """A short ``repr``: ``Name(field=float32 (8, 3), ...)``."""
    return f"{name}({', '.join(f'{key}={brief(value)}' for key, value in fields.items())})"
