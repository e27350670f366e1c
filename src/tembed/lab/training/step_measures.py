"""What each step measures. It stays on the device until it is read, because a read makes the host wait for the device.

On a GPU, steps are read some at a time: the host runs ahead of the device, and a loss that is not finite is found some
steps later. On the CPU each step is read at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tembed.lab.training.process_group import Forward
from tembed.loss import EmbeddingLoss

READ_STEPS = 50
"""Steps between two reads on a GPU."""


class Measured(NamedTuple):
    """The loss of a batch, and the means over its images: Eq. 3.1's two terms and the accuracy. Scalars on the device.

    ``patches`` is 0 without patch scores.
    """

    loss: Tensor
    head: Tensor
    patches: Tensor
    accuracy: Tensor


MeasuredLoss = Callable[[Tensor, Tensor], Measured]
"""The measures of images and labels."""


def measured_loss(forward: Forward, loss: EmbeddingLoss) -> MeasuredLoss:
    """The forward pass of a step: everything that ``--compile`` compiles."""

    def measure(images: Tensor, labels: Tensor) -> Measured:
        output = forward(images)
        terms = loss.terms(output, labels)
        accuracy = (output.logits.detach().argmax(1) == labels).to(terms.head.dtype).mean()
        patches = torch.zeros_like(terms.head) if terms.patches is None else terms.patches
        return Measured(loss.combine(terms), terms.head.detach(), patches.detach(), accuracy)

    return measure


@dataclass(frozen=True)
class StepMeans:
    """What was read of one step: its position in the epoch, the images of its batch, and means over them.

    ``asked_to_stop``: how many processes of several were asked to stop before this step.
    """

    step: int
    images: int
    head: float
    patches: float
    accuracy: float
    asked_to_stop: float = 0.0


class UnreadSteps:
    """The measures of the steps since the last read."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.values: list[Tensor] = []

    def add(self, step: int, images: int, values: Tensor) -> None:
        """Keep the values of `StepMeans` after its first two, as one tensor."""
        self.steps.append((step, images))
        self.values.append(values)

    def read(self) -> list[StepMeans]:
        """The steps since the last read, in order. The host waits for the device once."""
        if not self.steps:
            return []
        rows = torch.stack(self.values).cpu().tolist()
        read = [StepMeans(*position, *row) for position, row in zip(self.steps, rows, strict=True)]
        self.steps, self.values = [], []
        return read
