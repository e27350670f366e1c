"""Controls are what they say: other networks, changed features, all other groupings and pairs."""

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support.datasets import store_world
from support.features import made_features, save_untrained

from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.untrained import untrained
from tembed.lab.claims.controls import projected_mean, random_class_vectors, spatial_mean, with_embedding
from tembed.lab.claims.other_groupings import other_groupings, other_pairs, pair_sets
from tembed.lab.data.loading import load
from tembed.trained.weights_file import load as load_network

LABELS = np.repeat(np.arange(4), 3)


def test_a_spatial_mean_averages_the_existing_pixels_of_its_window() -> None:
    points = np.random.default_rng(0).normal(size=(2 * 3 * 5, 2)).astype(np.float32)
    maps = points.reshape(2, 3, 5, 2)
    for window in (2, 4):
        found = spatial_mean(points, (3, 5), window).reshape(2, 3, 5, 2)
        before, after = (window - 1) // 2, window // 2 + 1
        for row, column in itertools.product(range(3), range(5)):
            region = maps[:, max(0, row - before) : row + after, max(0, column - before) : column + after]
            np.testing.assert_allclose(found[:, row, column], region.mean((1, 2)), atol=1e-5)


def test_another_embedding_replaces_what_was_added_or_appended() -> None:
    features = made_features(LABELS)
    assert features.embedding is not None
    shortcut = features.block_output - features.embedding
    np.testing.assert_allclose(with_embedding(features, 0 * features.embedding), shortcut, atol=1e-5)
    joined = dataclasses.replace(
        features, block_output=np.concatenate([features.block_input[:, :3], features.embedding], 1)
    )
    changed = with_embedding(joined, 2 * features.embedding)
    np.testing.assert_allclose(changed[:, :3], features.block_input[:, :3])
    np.testing.assert_allclose(changed[:, 3:], 2 * features.embedding, atol=1e-5)


def test_random_class_vectors_keep_weights_and_lengths() -> None:
    features = made_features(LABELS)
    found = random_class_vectors(features, 1)
    assert features.values is not None
    assert features.mixing is not None
    assert features.embedding is not None
    assert found.values is not None
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), np.linalg.norm(features.values, axis=1), rtol=1e-5)
    assert not np.allclose(found.values, features.values, atol=0.1)
    expected = features.block_output - features.embedding + features.mixing @ found.values
    np.testing.assert_allclose(found.block_output, expected, atol=1e-4)
    np.testing.assert_array_equal(found.values, random_class_vectors(features, 1).values)


def test_a_projected_mean_has_the_moments_of_the_embedding_and_the_rank_of_the_classes() -> None:
    features = made_features(LABELS, (4, 4), 4, 16)
    assert features.embedding is not None
    shortcut = features.block_output - features.embedding
    drawn = projected_mean(features, 1).block_output - shortcut
    assert drawn.var(0).sum() == pytest.approx(features.embedding.var(0).sum(), rel=1e-3)
    np.testing.assert_allclose(drawn.mean(0), features.embedding.mean(0), atol=1e-3)
    means = spatial_mean(features.block_input, features.map_size, max(features.window))
    assert np.linalg.matrix_rank(drawn - drawn.mean(0), tol=1e-2) == 4
    centred = means - means.mean(0)
    found, *_ = np.linalg.lstsq(centred, drawn - drawn.mean(0), rcond=None)
    np.testing.assert_allclose(centred @ found, drawn - drawn.mean(0), atol=1e-2)
    assert not np.allclose(drawn, projected_mean(features, 2).block_output - shortcut, atol=0.1)


@pytest.mark.parametrize(("sizes", "ways"), [((6, 4), 210), ((5, 5), 126), ((2, 2, 2), 15), ((1, 2, 3), 60)])
def test_all_groupings_of_the_same_sizes_are_found_once(sizes: tuple[int, ...], ways: int) -> None:
    own = np.repeat(np.arange(len(sizes)), sizes)
    others = other_groupings(own, 0)
    as_sets = {frozenset(frozenset(np.flatnonzero(g == k)) for k in range(len(sizes))) for g in others}
    assert len(as_sets) == len(others) == ways - 1
    assert frozenset(frozenset(np.flatnonzero(own == k)) for k in range(len(sizes))) not in as_sets
    assert all(sorted(np.bincount(g)) == sorted(sizes) for g in others)


def test_of_many_groupings_a_thousand_are_drawn() -> None:
    own = np.repeat(np.arange(4), 5)
    others = other_groupings(own, 3)
    assert len({tuple(g) for g in others}) == 1000
    assert all(np.bincount(g).tolist() == [5] * 4 for g in others)
    np.testing.assert_array_equal(others, other_groupings(own, 3))


def test_pairs_and_sets_of_pairs() -> None:
    others = other_pairs([(3, 1), (0, 2)], 10, 0)
    assert len(others) == 43
    assert not {(1, 3), (0, 2)} & set(others)
    assert len(other_pairs([(0, 1)], 100, 0)) == 200
    assert pair_sets(43, 2, 0).shape == (math.comb(43, 2), 2)
    drawn = pair_sets(42, 3, 0)
    assert drawn.shape == (1000, 3)
    assert (np.diff(drawn, axis=1) > 0).all()


def test_an_untrained_network_has_other_weights_and_the_statistics_of_the_data(tmp_path: Path) -> None:
    store_world(tmp_path, "tiny", 200, 16)
    splits = load("tiny", root=tmp_path)
    path = save_untrained(tmp_path / "w.safetensors", "rn26-embed", "tiny", splits.test.classes, 16)
    network = load_network(path)
    state = torch.random.get_rng_state()
    first, again, second = (untrained(network, splits.train, seed) for seed in (5, 5, 6))
    assert torch.equal(state, torch.random.get_rng_state())
    weights = [one.stage3.state_dict() for one in (network, first, again, second)]
    name = next(name for name, tensor in weights[0].items() if tensor.ndim == 4)
    assert torch.equal(weights[1][name], weights[2][name])
    assert not torch.equal(weights[1][name], weights[3][name])
    assert not torch.equal(weights[1][name], weights[0][name])
    assert not first.training
    found = extract_features(first, splits.train)
    assert found.mixing is not None
    assert 0.3 < (found.mixing > 0).mean() < 0.7, "scores that are not normalised by data are one-sided"
    assert found.mixing.std() == pytest.approx(np.sqrt((1 - 1 / np.pi) / 2), rel=0.2)  # of max(0, normal)
