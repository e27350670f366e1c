"""Neighbours and distances against a slow loop."""

import numpy as np
import pytest

from tembed.lab.analysis import neighbours
from tembed.lab.analysis.neighbours import nearest, neighbourhood


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "VALUES", 400)  # several chunks


def test_neighbours_and_distances_agree_with_a_loop_over_other_images() -> None:
    rng = np.random.default_rng(0)
    points, per_image = rng.normal(size=(40, 3)).astype(np.float32), 4
    queries = np.arange(0, 40, 3)
    found = neighbourhood(points, per_image, queries, 5)
    assert found.nearest.shape == (len(queries), 5)
    for row, i in enumerate(queries):
        apart = np.linalg.norm(points - points[i], axis=1)
        others = [j for j in range(40) if j // per_image != i // per_image]
        assert found.nearest[row].tolist() == sorted(others, key=lambda j: apart[j])[:5]
        for image in range(10):
            expected = 0 if image == i // per_image else apart[image * per_image : (image + 1) * per_image].mean()
            assert found.distances[row, image] == pytest.approx(expected, rel=1e-4)
    assert neighbourhood(points, per_image, queries, 100).nearest.shape == (len(queries), 36)


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
