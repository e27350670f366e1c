"""Words are k-means centres with their nearest patches."""

from dataclasses import replace

import numpy as np
from support.features import made_features

from tembed.lab.analysis.words import Words, choose, find_words, refitted


def test_each_word_is_shown_by_the_patch_nearest_to_its_centre() -> None:
    features = made_features(np.repeat(np.arange(4), 30))
    words = find_words(features, 20)
    assert features.softmax is not None
    assert words.sizes.sum() == len(features.softmax)
    assert (np.diff(words.sizes) <= 0).all()
    for word, centre in enumerate(words.centres):
        patches = features.softmax[words.word_of == word]
        assert len(patches) == words.sizes[word]
        np.testing.assert_allclose(centre, patches.mean(0), atol=1e-3)
        apart = [np.linalg.norm(p - centre) for p in features.softmax]
        assert words.points[word] == int(np.argmin(apart))
    again = find_words(features, 20)
    np.testing.assert_array_equal(words.word_of, again.word_of)
    np.testing.assert_array_equal(words.chosen, again.chosen)


def test_a_word_is_shown_by_inner_patches_of_different_images() -> None:
    features = made_features(np.repeat(np.arange(4), 30), (4, 4))
    words = find_words(features, 20)
    assert features.softmax is not None
    assert words.shown.shape == (20, 4)
    for centre, shown in zip(words.centres, words.shown, strict=True):
        best: dict[int, tuple[float, int]] = {}
        for point in range(len(features.softmax)):
            image, row, column = features.position(point)
            if row < 3 and column < 3:  # windows of 2x2 reach one pixel further down and to the right
                distance = float(np.square(features.softmax[point] - centre).sum())
                best[image] = min(best.get(image, (np.inf, 0)), (distance, point))
        assert shown.tolist() == [point for _, point in sorted(best.values())[:4]]
    few = find_words(made_features(np.array([0, 1]), (4, 4)), 2)
    assert few.shown.shape == (2, 4)


def test_words_are_fitted_again_to_some_of_the_patches() -> None:
    features = made_features(np.repeat(np.arange(4), 30))
    words = find_words(features, 10)
    assert features.softmax is not None
    some = features.softmax[::2]
    found = refitted(words, some)
    apart = np.linalg.norm(some[:, None] - found.centres[None], axis=2)
    assert (apart.argmin(1) == found.word_of).mean() > 0.9  # the centres moved once more after the last assignment
    for word in range(10):
        np.testing.assert_allclose(found.centres[word], some[found.word_of == word].mean(0), atol=1e-5)
    same = refitted(words, features.softmax)
    assert np.abs(same.centres - words.centres).max() < 0.05


def test_chosen_words_mix_different_classes() -> None:
    centres = np.array([[1, 0, 0], [0.95, 0.05, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0, 0.79, 0.21]], np.float32)
    nothing = np.zeros(5, np.int64)
    words = Words(centres, nothing, nothing, np.array([9, 8, 7, 6, 5]), nothing, nothing[:, None])
    assert words.mixtures() == [(0,), (0,), (0, 1), (1, 0), (1, 2)]
    assert choose(words, 3).tolist() == [2, 4, 0]
    assert choose(words, 5).tolist() == [2, 4, 0, 1, 3]


def test_few_patches_make_few_words() -> None:
    features = made_features(np.repeat(np.arange(4), 5))
    assert len(find_words(features, 100).sizes) == 80 // 4
    assert len(find_words(made_features(np.array([0, 1]), (1, 1)), 100).sizes) == 1


def test_predictions_that_differ_in_their_last_bits_are_one_word() -> None:
    """K-means finds fewer clusters than it is asked for, and says so in a warning that nobody needs."""
    features = made_features(np.repeat(np.arange(4), 30))
    assert features.softmax is not None
    kinds = np.eye(4, dtype=np.float32)[np.arange(len(features.softmax)) % 3]
    nearly = kinds + np.float32(1e-7) * np.arange(len(kinds), dtype=np.float32)[:, None] / len(kinds)
    words = find_words(replace(features, softmax=nearly), 20)
    assert 3 <= len(words.sizes) <= 20
    assert words.sizes.min() > 0
    assert words.sizes.sum() == len(kinds)
    assert len(words.centres) == len(words.points) == len(words.shown) == len(words.sizes)
    assert words.word_of.max() == len(words.sizes) - 1
