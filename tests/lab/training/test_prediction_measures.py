"""Accuracy by class, confusions and calibration, against plain loops and worked examples."""

import numpy as np
import pytest

from tembed.lab.training.prediction_measures import BINS, Predictions


def made(labels: list[int], probabilities: np.ndarray, patches: np.ndarray | None = None) -> Predictions:
    p = np.asarray(probabilities, np.float32)
    losses = -np.log(p[np.arange(len(labels)), labels])
    classes = tuple("abcdefgh"[: p.shape[1]])
    return Predictions(classes, np.array(labels), p, losses, patches, tuple(f"{k}.jpg" for k in range(len(labels))))


def random(images: int = 400, classes: int = 4, seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    return made(rng.integers(0, classes, images).tolist(), rng.dirichlet(np.full(classes, 0.5), images))


def test_confusions_are_counted_by_true_class_and_prediction() -> None:
    found = random()
    expected = np.zeros((4, 4), int)
    for label, p in zip(found.labels, found.probabilities, strict=True):
        expected[label, p.argmax()] += 1
    np.testing.assert_array_equal(found.confusion, expected)
    assert found.confusion.sum() == len(found)
    pairs = found.confusions(3)
    wrong = sorted((expected[a, b] for a in range(4) for b in range(4) if a != b), reverse=True)
    assert [count for _, _, count in pairs] == wrong[:3]
    assert all(expected["abcd".index(a), "abcd".index(b)] == count for a, b, count in pairs)


def test_a_class_is_measured_by_its_images_and_by_its_predictions() -> None:
    """Two images of a (one taken for b), one of b, none of c, which nothing is taken for."""
    found = made([0, 0, 1], np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1]]))
    a, b, c = found.by_class()
    assert (a.images, a.accuracy, a.precision, a.confused, a.confused_images) == (2, 0.5, 1.0, "b", 1)
    assert (b.images, b.accuracy, b.precision, b.confused, b.confused_images) == (1, 1.0, 0.5, None, 0)
    assert (c.images, c.accuracy, c.precision) == (0, None, None)
    assert found.confusions(5) == [("a", "b", 1)]


def test_the_calibration_error_is_the_mean_gap_over_bins() -> None:
    found = random()
    confidence, right = found.probabilities.max(1).astype(float), found.predicted == found.labels
    expected = 0.0
    for k in range(BINS):
        inside = [i for i in range(len(found)) if k / BINS < confidence[i] <= (k + 1) / BINS]
        if inside:
            gap = abs(np.mean(confidence[inside]) - np.mean(right[inside]))
            expected += len(inside) / len(found) * gap
    assert found.calibration_error == pytest.approx(expected)
    assert sum(one.images for one in found.calibration()) == len(found)
    filled = [one for one in found.calibration() if one.images]
    assert all(one.low < one.confidence <= one.low + 1 / BINS + 1e-9 for one in filled)


def test_a_sure_network_that_is_half_right_is_too_sure_by_half() -> None:
    found = made([0, 1], np.array([[0.9999, 0.0001], [0.9999, 0.0001]]))
    assert found.calibration_error == pytest.approx(0.5, abs=1e-3)
    assert found.overconfidence == pytest.approx(0.5, abs=1e-3)
    assert made([0], np.array([[1.0, 0.0]])).calibration_error == pytest.approx(0)


def test_the_worst_images_have_the_highest_loss() -> None:
    found = random()
    assert found.losses[found.worst(5)].tolist() == sorted(found.losses.tolist(), reverse=True)[:5]
