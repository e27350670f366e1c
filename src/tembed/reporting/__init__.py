"""What long work tells its user while it runs, and the reports that it writes at the end.

`Progress` is the one observer of data, training, grids and analysis. Names are imported when first used.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.reporting.progress import Lines as Lines
    from tembed.reporting.progress import Progress as Progress
    from tembed.reporting.terminal import Bars as Bars

_HOME = {"Bars": "terminal", "Lines": "progress", "Progress": "progress"}

__getattr__, __dir__, __all__ = lazy("tembed.reporting", _HOME)
