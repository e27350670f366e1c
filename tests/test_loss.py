"""Eq. 3.1 against a plain triple loop over images and patches."""

import math

import pytest
import torch
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.loss import EmbeddingLoss
from tembed.models.network import Output


def cross_entropy(scores: list[float], label: int) -> float:
    top = max(scores)
    return top + math.log(sum(math.exp(s - top) for s in scores)) - scores[label]


def looped_loss(logits: Tensor, scores: Tensor, labels: Tensor, weight: float) -> float:
    count, _, height, width = scores.shape
    total = 0.0
    for n in range(count):
        y = int(labels[n])
        total += (1 - weight) * cross_entropy(logits[n].tolist(), y)
        for i in range(height):
            for j in range(width):
                total += weight * cross_entropy(scores[n, :, i, j].tolist(), y) / (height * width)
    return total / count


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("size", [(8, 8), (3, 5), (1, 1)])
def test_equals_a_triple_loop(weight: float, size: tuple[int, int]) -> None:
    logits, scores = 4 * torch.randn(5, 7, dtype=torch.double), 4 * torch.randn(5, 7, *size, dtype=torch.double)
    labels = torch.randint(7, (5,))
    loss = EmbeddingLoss(weight)(Output(logits, scores), labels)
    assert loss.item() == pytest.approx(looped_loss(logits, scores, labels, weight), rel=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_label_smoothing_mixes_every_target_with_the_uniform_one(weight: float) -> None:
    logits, scores = torch.randn(3, 4, dtype=torch.double), torch.randn(3, 4, 2, 3, dtype=torch.double)
    labels, smoothing = torch.tensor([2, 0, 3]), 0.2
    uniform = [looped_loss(logits, scores, torch.full((3,), label), weight) for label in range(4)]
    expected = (1 - smoothing) * looped_loss(logits, scores, labels, weight) + smoothing * sum(uniform) / 4
    loss = EmbeddingLoss(weight, label_smoothing=smoothing)(Output(logits, scores), labels)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    with pytest.raises(TembedError, match="`label_smoothing` is 1"):
        EmbeddingLoss(label_smoothing=1.0)


def test_class_weights_multiply_the_loss_of_each_image_before_the_mean() -> None:
    logits, scores = torch.randn(3, 4, dtype=torch.double), torch.randn(3, 4, 2, 3, dtype=torch.double)
    labels, weights = torch.tensor([2, 0, 2]), torch.tensor([0.5, 1.0, 2.0, 7.0])
    each = [looped_loss(logits[n, None], scores[n, None], labels[n, None], 0.3) for n in range(3)]
    loss = EmbeddingLoss(0.3, class_weights=weights)(Output(logits, scores), labels)
    assert loss.item() == pytest.approx((2 * each[0] + 0.5 * each[1] + 2 * each[2]) / 3, rel=1e-6)
    ones = EmbeddingLoss(0.3, class_weights=torch.ones(4))
    torch.testing.assert_close(ones(Output(logits, scores), labels), EmbeddingLoss(0.3)(Output(logits, scores), labels))
    assert not ones.state_dict()


def test_class_weights_multiply_the_smoothed_loss() -> None:
    logits, labels = torch.randn(3, 4, dtype=torch.double), torch.tensor([2, 0, 2])
    weights, smoothing = torch.tensor([0.5, 1.0, 2.0, 7.0]).double(), 0.2
    targets = (1 - smoothing) * torch.eye(4).double()[labels] + smoothing / 4
    each = -(targets * logits.log_softmax(1)).sum(1)
    loss = EmbeddingLoss(0, label_smoothing=smoothing, class_weights=weights)(Output(logits, None), labels)
    torch.testing.assert_close(loss, (each * weights[labels]).sum() / 3)


def test_terms_are_the_two_means() -> None:
    output, labels = Output(torch.randn(4, 3), torch.randn(4, 3, 2, 2)), torch.tensor([0, 1, 2, 0])
    loss = EmbeddingLoss(0.25)
    head, patches = loss.terms(output, labels)
    torch.testing.assert_close(loss(output, labels), 0.75 * head + 0.25 * patches)


def test_a_model_without_scores_needs_weight_zero() -> None:
    output, labels = Output(torch.randn(4, 3), None), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(EmbeddingLoss(0)(output, labels), torch.nn.functional.cross_entropy(*output[:1], labels))
    with pytest.raises(TembedError, match="no patch scores"):
        EmbeddingLoss(0.5)(output, labels)


@pytest.mark.parametrize("weight", [-0.1, 1.5, math.nan])
def test_a_weight_outside_zero_to_one_is_refused(weight: float) -> None:
    with pytest.raises(TembedError, match="between 0 and 1"):
        EmbeddingLoss(weight)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 3]), "label 3 is out of range for 3 classes"),
        (torch.tensor([-1, 0]), "label -1 is out of range"),
        (torch.tensor([0, 1, 2]), "one per image"),
        (torch.tensor([0.0, 1.0]), "int64"),
    ],
)
def test_wrong_labels_are_named(labels: Tensor, message: str) -> None:
    with pytest.raises(TembedError, match=message):
        EmbeddingLoss()(Output(torch.randn(2, 3), torch.randn(2, 3, 4, 4)), labels)


def test_the_loss_asks_for_the_whole_output() -> None:
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(
        TembedError, match=r"got float32 \(2, 3\) instead of the network's output.*loss\(model\(images\)"
    ):
        EmbeddingLoss()(logits, labels)  # type: ignore[arg-type]
    with pytest.raises(TembedError, match="got tuple instead"):
        EmbeddingLoss()((logits, None), labels)  # type: ignore[arg-type]
