"""NumPy array types that several packages use."""

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Int64 = NDArray[np.int64]
Floats = NDArray[np.float32]
