"""The training loss (Eq. 3.1)."""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.common.arrays import brief
from tembed.common.errors import TembedError
from tembed.paper import LAMBDA


class Scored(Protocol):
    """Anything with the logits of the head, ``(N, C)``, and the patch scores, ``(N, C, H, W)`` or None."""

    @property
    def logits(self) -> Tensor: ...
    @property
    def scores(self) -> Tensor | None: ...


class Terms(NamedTuple):
    """The two means of Eq. 3.1. ``patches`` is None if the model has no patch scores."""

    head: Tensor
    patches: Tensor | None


class EmbeddingLoss(nn.Module):
    """``(1 - weight) CE(logits, y) + weight * mean over the H*W patches of CE(scores, y)`` (Eq. 3.1).

    ``weight`` is the paper's lambda. With ``weight=0`` this is the plain cross-entropy and needs no scores.
    ``label_smoothing`` spreads this share of every target, of the head and of the patches, evenly over all classes.
    ``class_weights``, ``(C,)``, multiply the loss of each image by the weight of its class before the mean is taken.
    """

    class_weights: Tensor | None

    def __init__(self, weight: float = LAMBDA, *, label_smoothing: float = 0.0, class_weights: Tensor | None = None):
        super().__init__()
        if not 0.0 <= label_smoothing < 1.0:
            raise TembedError(f"`label_smoothing` is {label_smoothing}; it must be from 0 to below 1")
        if not 0.0 <= weight <= 1.0:
            raise TembedError(f"`weight` is {weight}; the weight of the patch loss must be between 0 and 1")
        self.weight = weight
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", class_weights, persistent=False)

    def terms(self, output: Scored, labels: Tensor) -> Terms:
        """Mean cross-entropy of the head and of the patches."""
        if not hasattr(output, "logits"):
            given = brief(output) if isinstance(output, Tensor) else type(output).__name__
            raise TembedError(
                f"the loss got {given} instead of the network's output, which has logits and patch scores: "
                "loss(model(images), labels)"
            )
        logits, scores = output.logits, output.scores
        if not torch.compiler.is_compiling() and labels.device.type == "cpu":  # on a GPU this check would force a sync
            self._check(labels, logits)
        head = self._mean(logits, labels)
        if scores is None:
            if self.weight > 0:
                raise TembedError(
                    f"the model has no patch scores, but their loss has the weight {self.weight}: use an '-embed' or "
                    "'-aux' model, or EmbeddingLoss(weight=0)"
                )
            return Terms(head, None)
        return Terms(head, self._mean(scores, labels[:, None, None].expand(-1, *scores.shape[2:])))

    def _mean(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of the scores of images or of patches."""
        if self.class_weights is None:
            return F.cross_entropy(scores, labels, label_smoothing=self.label_smoothing)
        # torch's own class weights divide by their sum in the batch, so they would differ from step to step.
        each = F.cross_entropy(scores, labels, label_smoothing=self.label_smoothing, reduction="none")
        return (each * self.class_weights.to(each)[labels]).mean()

    def combine(self, terms: Terms) -> Tensor:
        """Eq. 3.1 from its two means."""
        if terms.patches is None:
            return terms.head
        return (1 - self.weight) * terms.head + self.weight * terms.patches

    def forward(self, output: Scored, labels: Tensor) -> Tensor:
        return self.combine(self.terms(output, labels))

    def extra_repr(self) -> str:
        smoothing = f", label_smoothing={self.label_smoothing}" if self.label_smoothing else ""
        return f"weight={self.weight}{smoothing}"

    @staticmethod
    def _check(labels: Tensor, logits: Tensor) -> None:
        if labels.dtype != torch.int64 or labels.shape != logits.shape[:1]:
            raise TembedError(
                f"labels must be int64 of shape ({len(logits)},), one per image, not {labels.dtype} of shape "
                f"{tuple(labels.shape)}"
            )
        classes = logits.shape[1]
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            raise TembedError(f"label {wrong[0].item()} is out of range for {classes} classes (0 to {classes - 1})")
