"""The training loss (Eq. 3.1)."""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.errors import TembedError


class Scored(Protocol):
    """Anything with the head's logits ``(N, C)`` and the patches' scores ``(N, C, H, W)`` or None."""

    @property
    def logits(self) -> Tensor: ...
    @property
    def scores(self) -> Tensor | None: ...


class Terms(NamedTuple):
    """The two means of Eq. 3.1; ``patches`` is None where the weight leaves it out."""

    head: Tensor
    patches: Tensor | None


class EmbeddingLoss(nn.Module):
    """``(1 - weight) CE(logits, y) + weight * mean over the H*W patches of CE(scores, y)`` (Eq. 3.1).

    ``weight`` is the paper's lambda. With ``weight=0`` it is the plain cross-entropy and needs no scores.
    """

    def __init__(self, weight: float = 0.5):
        super().__init__()
        if not 0.0 <= weight <= 1.0:
            raise TembedError(f"the weight of the patches' loss lies between 0 and 1, not {weight}")
        self.weight = weight

    def terms(self, output: Scored, labels: Tensor) -> Terms:
        """Mean cross-entropy of the head, and of the patches."""
        logits, scores = output.logits, output.scores
        if not torch.compiler.is_compiling() and labels.device.type == "cpu":  # elsewhere a look costs a wait
            self._check(labels, logits)
        head = F.cross_entropy(logits, labels)
        if scores is None:
            if self.weight > 0:
                raise TembedError(
                    f"the model gives no patch scores for a loss of weight {self.weight}: take an '-embed' or "
                    "'-aux' model, or EmbeddingLoss(weight=0)"
                )
            return Terms(head, None)
        patch_labels = labels[:, None, None].expand(-1, *scores.shape[2:])
        return Terms(head, F.cross_entropy(scores, patch_labels))

    def combine(self, terms: Terms) -> Tensor:
        """Eq. 3.1 from its two means."""
        if terms.patches is None:
            return terms.head
        return (1 - self.weight) * terms.head + self.weight * terms.patches

    def forward(self, output: Scored, labels: Tensor) -> Tensor:
        return self.combine(self.terms(output, labels))

    def extra_repr(self) -> str:
        return f"weight={self.weight}"

    @staticmethod
    def _check(labels: Tensor, logits: Tensor) -> None:
        if labels.dtype != torch.int64 or labels.shape != logits.shape[:1]:
            raise TembedError(
                f"labels must be int64 of shape ({len(logits)},), one for each image, not {labels.dtype} of shape "
                f"{tuple(labels.shape)}"
            )
        classes = logits.shape[1]
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            raise TembedError(f"label {wrong[0].item()} is out of range for {classes} classes (0 to {classes - 1})")
