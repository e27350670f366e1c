"""Progress of long work, and the reports that are written at its end.

`Progress` is the one observer of data, training, grids and analysis. Its views are `Bars` (terminal), `Lines` (plain
text), `Notebook` and `TensorBoard`; `Several` forwards to more than one, and `SILENT` shows nothing. Names are imported
when first used.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.reporting.notebook import Notebook as Notebook
    from tembed.reporting.progress import SILENT as SILENT
    from tembed.reporting.progress import Lines as Lines
    from tembed.reporting.progress import Progress as Progress
    from tembed.reporting.progress import Several as Several
    from tembed.reporting.tensorboard import TensorBoard as TensorBoard
    from tembed.reporting.terminal import Bars as Bars

_HOME = {
    "Bars": "terminal",
    "Lines": "progress",
    "Notebook": "notebook",
    "Progress": "progress",
    "SILENT": "progress",
    "Several": "progress",
    "TensorBoard": "tensorboard",
}

__getattr__, __dir__, __all__ = lazy("tembed.reporting", _HOME)
