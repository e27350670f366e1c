"""Words are k-means centres with their nearest patches."""

import numpy as np
import pytest
from support.features import made_features

from tembed.analysis.claims.words import word_claims
from tembed.analysis.words import MIXED, Words, choose, find_words
from tembed.errors import TembedError


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


def test_chosen_words_mix_different_classes_and_the_claim_counts_mixed_centres() -> None:
    centres = np.array([[1, 0, 0], [0.95, 0.05, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0, 0.79, 0.21]], np.float32)
    nothing = np.zeros(5, np.int64)
    words = Words(centres, nothing, nothing, np.array([9, 8, 7, 6, 5]), nothing)
    assert words.mixtures() == [(0,), (0,), (0, 1), (1, 0), (1, 2)]
    assert choose(words, 3).tolist() == [2, 4, 0]
    assert choose(words, 5).tolist() == [2, 4, 0, 1, 3]
    (claim,) = word_claims(words, None)
    assert claim.values["block"].value == sum((centre > MIXED).sum() > 1 for centre in centres) == 3
    assert "baseline" not in claim.values


def test_too_few_patches_for_the_words_are_an_error() -> None:
    with pytest.raises(TembedError, match="too few for 100 visual words: give more `images_per_class`"):
        find_words(made_features(np.repeat(np.arange(4), 5)), 100)
