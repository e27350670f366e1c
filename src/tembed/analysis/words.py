"""Visual words: clusters of the patches' class predictions, each shown by its nearest patch (Fig. 7)."""

from dataclasses import dataclass

import numpy as np

from tembed.analysis.claims.claim import Claim, Measure
from tembed.analysis.features import Features
from tembed.arrays import Floats, Int64
from tembed.errors import TembedError
from tembed.extras import needs

WORDS, CHOSEN = 100, 16
MIXED = 0.2
"""A word mixes the classes whose probability is above this."""
MOST_MIXED = 11
"""Of the chosen words at most this many mix classes, so that some words of one class are shown beside them."""


@dataclass(frozen=True)
class Words:
    """``centres``: ``(K, C)``. ``points``: ``(K,)``, the patch nearest to each centre. ``word_of``: ``(P,)``, each
    patch's word. ``sizes``: ``(K,)``, the patches of each word. ``chosen``: the words to show first.
    """

    centres: Floats
    points: Int64
    word_of: Int64
    sizes: Int64
    chosen: Int64

    def mixtures(self) -> list[tuple[int, ...]]:
        """The classes that each centre mixes, the strongest first."""
        return [tuple(k for k in np.argsort(-centre) if centre[k] > MIXED) for centre in self.centres]


def find_words(features: Features, count: int = WORDS, seed: int = 0) -> Words:
    """``count`` words by k-means, the largest first."""
    cluster = needs("sklearn.cluster")
    p = features.softmax
    assert p is not None
    distinct = len(np.unique(p, axis=0))
    if distinct < count:
        raise TembedError(
            f"{distinct} different patch predictions are too few for {count} visual words: give more --images-per-class"
        )
    with needs("threadpoolctl").threadpool_limits(1):  # threads would add in no fixed order
        fitted = cluster.KMeans(count, n_init=1, random_state=seed).fit(p)
    sizes = np.bincount(fitted.labels_, minlength=count)
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    centres = fitted.cluster_centers_[order].astype(np.float32)
    points = np.array([np.square(p - centre).sum(1).argmin() for centre in centres])
    words = Words(centres, points, rank[fitted.labels_], sizes[order], np.zeros(0, np.int64))
    return Words(words.centres, words.points, words.word_of, words.sizes, choose(words))


def choose(words: Words, count: int = CHOSEN) -> Int64:
    """The words to show: of each set of mixed classes the largest word; the mixtures first, then single classes.

    What is left of ``count`` is filled with the largest words that were not taken.
    """
    first: dict[frozenset[int], int] = {}
    for word, mixture in enumerate(words.mixtures()):
        first.setdefault(frozenset(mixture), word)
    mixed = [word for mixture, word in first.items() if len(mixture) > 1][:MOST_MIXED]
    taken = (mixed + [word for mixture, word in first.items() if len(mixture) <= 1])[:count]
    rest = [word for word in range(len(words.sizes)) if word not in taken]
    return np.array((taken + rest)[:count])


def words_claim(words: Words, baseline: Words | None) -> Claim:
    """How many words mix classes."""
    values = {}
    for column, found in (("baseline", baseline), ("block", words)):
        if found is not None:
            values[column] = Measure(float(sum(len(mixture) > 1 for mixture in found.mixtures())))
    mixed = values["block"].value
    return Claim(
        "words that mix classes",
        "combinations of the classes make words of their own, beside words of a single class",
        f"of {len(words.sizes)} words, those whose centre has two or more classes above {MIXED}",
        "holds" if 0 < mixed < len(words.sizes) else "does not hold",
        f"{mixed:.0f} of {len(words.sizes)} words mix two or more classes, {len(words.sizes) - mixed:.0f} do not",
        values,
    )
