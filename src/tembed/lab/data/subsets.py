"""Train, validation and test: the names of the subsets, and their codes on disk."""

from typing import Literal, get_args

Subset = Literal["train", "val", "test"]
SUBSETS: tuple[Subset, ...] = get_args(Subset)
UNKNOWN = 0
"""The code of an image whose source does not say which subset it belongs to."""
CODES: dict[Subset, int] = {name: code for code, name in enumerate(SUBSETS, UNKNOWN + 1)}
"""The code of each subset in arrays such as ``origin.npy`` of the store: 1, 2 and 3."""
