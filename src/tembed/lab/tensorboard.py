"""Progress of a training as TensorBoard scalars: ``tensorboard --logdir FOLDER`` shows them."""

import time
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError
from tembed.common.progress import Progress

EVERY = 5.0
"""Seconds between two points of the training loss."""


class TensorBoard(Progress):
    """Writes ``epoch/NAME`` for every number of an epoch, and the training loss as ``training/loss`` every few seconds.

    The former are plotted over the epoch, the latter over the number of images seen. ``folder`` is created at the
    first event. A resumed run can use the same folder: losses from after its checkpoint are replaced.
    """

    def __init__(self, folder: str | Path, every: float = EVERY):
        self.folder, self.every = Path(folder), every
        self.create = _summary_writer()
        self.writer: Any = None
        self.last = float("-inf")

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        now = time.monotonic()
        if task != "training" or "loss" not in numbers or now - self.last < self.every:
            return
        self.last = now
        if self.writer is None:
            self.writer = self.create(str(self.folder), purge_step=int(done))
        self.writer.add_scalar("training/loss", numbers["loss"], int(done))

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        if self.writer is None:
            self.writer = self.create(str(self.folder))
        for name, value in metrics.items():
            if name != "epoch" and isinstance(value, (int, float)):
                self.writer.add_scalar(f"epoch/{name}", value, metrics["epoch"])
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer, self.last = None, float("-inf")


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "tensorboard":
            raise
        raise TembedError("the TensorBoard view needs tensorboard: pip install 'tembed[tensorboard]'") from None
    return SummaryWriter
