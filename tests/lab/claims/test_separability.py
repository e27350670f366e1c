"""Purity, silhouette and probe in each half-sample agree with slow forms that see only that half-sample."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import silhouette_score

from tembed.lab.analysis.neighbours import neighbourhood
from tembed.lab.claims import separability as module
from tembed.lab.claims.evidence import control
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.separability import RIDGE, K, neighbour_classes, probes, queries_of, separability, silhouettes

LABELS = np.array([0, 1, 2, 0, 1, 2] * 4)
IMAGES, PER = len(LABELS), 4
GROUPS = np.array([0, 1, 0])


@pytest.fixture
def points() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(IMAGES * PER, 3)) + np.repeat(np.eye(3)[LABELS], PER, axis=0)).astype(np.float32)


@pytest.fixture
def samples() -> HalfSamples:
    return HalfSamples.draw(LABELS, 3, seed=2, resamples=6)


def test_neighbours_in_a_half_sample_are_those_among_its_images(points: np.ndarray, samples: HalfSamples) -> None:
    queries = np.arange(len(points))
    found = neighbour_classes(neighbourhood(points, PER, queries, 128), PER, samples)
    image_of = queries // PER
    for draw, row in enumerate(samples.rows):
        counts = np.zeros((3, 3))
        for i in queries[row[image_of]]:
            others = [j for j in queries if row[image_of[j]] and image_of[j] != image_of[i]]
            for j in sorted(others, key=lambda j: np.linalg.norm(points[j] - points[i]))[:K]:
                counts[LABELS[image_of[i]], LABELS[image_of[j]]] += 1
        np.testing.assert_allclose(found[draw], counts / counts.sum(), atol=1e-9)


def test_purity_of_a_grouping_is_the_share_of_neighbours_in_the_own_group(
    points: np.ndarray, samples: HalfSamples
) -> None:
    found = separability(points, (2, 2), samples)
    joint = found.joint[3]
    assert found.purity(GROUPS)[3] == pytest.approx(joint[0, 0] + joint[0, 2] + joint[2, 0] + joint[2, 2] + joint[1, 1])
    assert found.purity(np.arange(3))[3] == pytest.approx(np.trace(joint))


def test_purity_is_unknown_where_no_group_has_two_images() -> None:
    """Two images of each class: a half-sample has one, which has no other image of its class to be near."""
    labels = np.repeat(np.arange(4), 2)
    samples = HalfSamples.draw(labels, 4, resamples=10)
    points = np.random.default_rng(0).normal(size=(len(labels) * PER, 3)).astype(np.float32)
    found = separability(points, (2, 2), samples)
    own = found.purity(np.arange(4))
    assert np.isfinite(own[0])
    assert np.isnan(own[1:]).all()
    assert np.isfinite(found.purity(np.array([0, 0, 1, 1]))).all()
    assert control("c", own, [own - 0.1]).p == 1


def test_the_silhouette_is_sklearns_for_images_of_one_pixel(samples: HalfSamples) -> None:
    x = (np.random.default_rng(1).normal(size=(IMAGES, 4)) + np.eye(3, 4)[LABELS]).astype(np.float32)
    distances = neighbourhood(x, 1, np.arange(IMAGES), 5).distances
    found = silhouettes(distances, np.arange(IMAGES), samples, np.array([GROUPS, np.arange(3)]))
    for draw, row in enumerate(samples.rows):
        assert found[draw, 0] == pytest.approx(silhouette_score(x[row], GROUPS[LABELS[row]]), abs=1e-4)
        assert found[draw, 1] == pytest.approx(silhouette_score(x[row], LABELS[row]), abs=1e-4)


def folds(row: np.ndarray) -> np.ndarray:
    """The half of each image of a half-sample, which takes turns within a class; -1 for the other images."""
    fold = np.full(IMAGES, -1)
    for label in range(3):
        images = np.flatnonzero(row & (label == LABELS))
        fold[images] = np.arange(len(images)) % 2
    return fold


def test_the_probe_is_a_ridge_regression_on_the_groups(points: np.ndarray, samples: HalfSamples) -> None:
    image_of = np.arange(len(points)) // PER
    found = probes(points, image_of, samples, GROUPS[None])[0][:, 0]
    for draw, row in enumerate(samples.rows):
        fold = folds(row)
        right = []
        for tested in (0, 1):
            fit, test = fold[image_of] == 1 - tested, fold[image_of] == tested
            mean, spread = points[fit].mean(0), points[fit].std(0)
            target = np.eye(2)[GROUPS[LABELS[image_of[fit]]]]
            model = Ridge(RIDGE * fit.sum()).fit((points[fit] - mean) / spread, target)
            right.append(model.predict((points[test] - mean) / spread).argmax(1) == GROUPS[LABELS[image_of[test]]])
        assert found[draw] == pytest.approx(np.concatenate(right).mean(), abs=0.011)


def test_the_probe_is_tested_on_other_images_than_it_was_fitted_on() -> None:
    """The features identify the image only: a probe fitted on the same images would always be right."""
    labels = np.repeat([0, 1], 20)
    image_of = np.repeat(np.arange(40), 4)
    space = np.eye(40, dtype=np.float32)[image_of]
    found, lda = probes(space, image_of, HalfSamples.draw(labels, 2, 0, 4), np.array([[0, 1]]))
    assert (found < 0.8).all()
    assert (lda < 0.8).all()


def test_the_discriminant_analysis_is_sklearns(points: np.ndarray, samples: HalfSamples) -> None:
    image_of = np.arange(len(points)) // PER
    _, found = probes(points, image_of, samples)
    for draw, row in enumerate(samples.rows):
        fold = folds(row)
        right = []
        for tested in (0, 1):
            fit, test = fold[image_of] == 1 - tested, fold[image_of] == tested
            model = LinearDiscriminantAnalysis().fit(points[fit], LABELS[image_of[fit]])
            right.append(model.predict(points[test]) == LABELS[image_of[test]])
        assert found[draw] == pytest.approx(np.concatenate(right).mean(), abs=0.011)


def test_queries_are_evenly_spaced() -> None:
    rows = queries_of((8, 8), 2).reshape(2, 4, 4)
    assert rows[0, 0].tolist() == [0, 2, 4, 6]
    assert rows[0, :, 0].tolist() == [0, 16, 32, 48]
    assert (rows[1] == rows[0] + 64).all()
    assert queries_of((11, 3), 1).tolist() == [r * 3 + c for r in (0, 3, 6, 9) for c in (0, 1, 2)]


def test_the_list_of_neighbours_is_long_enough_for_half_samples() -> None:
    """On average half of the list is left, and ten are needed."""
    assert module.LISTED >= 10 * K
    assert module.LISTED < 256, "cumulative counts are bytes"
