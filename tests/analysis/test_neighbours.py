"""Neighbours, purity and silhouette against a slow loop."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

from tembed.analysis import neighbours
from tembed.analysis.neighbours import nearest, neighbourhood, purity, silhouette


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "VALUES", 400)  # several chunks


def test_neighbours_and_distances_agree_with_a_loop_over_other_images() -> None:
    rng = np.random.default_rng(0)
    points, per_image = rng.normal(size=(40, 3)).astype(np.float32), 4
    groups = np.repeat(np.arange(10) % 3, per_image)
    found = neighbourhood(points, per_image, groups, 3, 5)
    for i in range(40):
        apart = np.linalg.norm(points - points[i], axis=1)
        others = [j for j in range(40) if j // per_image != i // per_image]
        assert sorted(found.nearest[i]) == sorted(sorted(others, key=lambda j: apart[j])[:5])
        for group in range(3):
            expected = np.mean([apart[j] for j in others if groups[j] == group])
            assert found.distances[i, group] == pytest.approx(expected, rel=1e-4)
    share = purity(found.nearest, groups)
    assert share[7] == pytest.approx(np.mean([groups[j] == groups[7] for j in found.nearest[7]]))


def test_the_silhouette_of_single_pixel_images_is_that_of_sklearn() -> None:
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3, 30)
    points = (rng.normal(size=(30, 4)) + groups[:, None]).astype(np.float32)
    found = neighbourhood(points, 1, groups, 3, 2)
    np.testing.assert_allclose(silhouette(found.distances, groups), silhouette_samples(points, groups), atol=1e-4)


def test_nearest_finds_close_points_and_their_exact_distances() -> None:
    rng = np.random.default_rng(2)
    points = (1 + 1e-4 * rng.normal(size=(50, 6))).astype(np.float32)
    indices, distances = nearest(points, 7)
    for i in range(50):
        apart = np.linalg.norm(points.astype(np.float64) - points[i], axis=1)
        apart[i] = np.inf
        np.testing.assert_allclose(distances[i], np.sort(apart)[:7], rtol=2e-2)
        np.testing.assert_allclose(distances[i], apart[indices[i]], rtol=1e-3)
        assert i not in indices[i]
