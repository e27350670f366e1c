"""Visual words: clusters of the patches' class predictions, each shown by its nearest patches (Fig. 7)."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from tembed.common.arrays import Floats, Int64
from tembed.common.extras import needs
from tembed.lab.analysis.features import Features

WORDS, CHOSEN = 100, 16
PATCHES = 4
"""Patches that show a word."""
STEPS = 3
"""Steps of k-means that fit the words again to a half-sample."""
MIXED = 0.2
"""A word mixes the classes whose probability is above this."""
MOST_MIXED = 11
"""At most this many of the chosen words mix classes, which leaves room for words of a single class."""


@dataclass(frozen=True)
class Words:
    """``centres``: ``(K, C)``. ``points``: ``(K,)``, the patch nearest to each centre. ``word_of``: ``(P,)``, each
    patch's word. ``sizes``: ``(K,)``, the number of patches of each word. ``chosen``: the words to show first.
    ``shown``: ``(K, PATCHES)``, the patches that show each word: the nearest ones that lie inside their images.
    """

    centres: Floats
    points: Int64
    word_of: Int64
    sizes: Int64
    chosen: Int64
    shown: Int64

    def mixtures(self) -> list[tuple[int, ...]]:
        """The classes that each centre mixes, the strongest first."""
        return [tuple(k for k in np.argsort(-centre) if centre[k] > MIXED) for centre in self.centres]


def find_words(features: Features, count: int = WORDS, seed: int = 0) -> Words:
    """``count`` words by k-means, the largest first; fewer if there are fewer than `PATCHES` predictions per word."""
    cluster = needs("sklearn.cluster")
    p = features.softmax
    assert p is not None
    count = max(1, min(count, len(np.unique(p, axis=0)) // PATCHES))
    with needs("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():  # threads would add in a varying order
        # Predictions that differ in their last bits count as one, so some of the words may stay empty.
        warnings.filterwarnings("ignore", "Number of distinct clusters")
        fitted = cluster.KMeans(count, n_init=1, random_state=seed).fit(p)
    sizes = np.bincount(fitted.labels_, minlength=count)
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(len(order))
    centres = fitted.cluster_centers_[order].astype(np.float32)
    points = np.array([np.square(p - centre).sum(1).argmin() for centre in centres])
    inner = np.flatnonzero(features.inside)
    shown = np.stack([_shown(p, centre, inner, features.per_image) for centre in centres])
    words = Words(centres, points, rank[fitted.labels_], sizes[order], np.zeros(0, np.int64), shown)
    return replace(words, chosen=choose(words))


def _shown(p: Floats, centre: Floats, inner: Int64, per_image: int) -> Int64:
    """The inner patches nearest to a centre, of different images if possible: ``(PATCHES,)``."""
    order = inner[np.argsort(np.square(p[inner] - centre).sum(1), kind="stable")]
    _, first = np.unique(order // per_image, return_index=True)
    different = order[np.sort(first)[:PATCHES]]
    return np.concatenate([different, order[~np.isin(order, different)], np.repeat(order[:1], PATCHES)])[:PATCHES]


def refitted(words: Words, p: Floats) -> Words:
    """The words of some of the patches ``(P', C)``: a few steps of k-means from these centres, in the same order."""
    centres = words.centres
    for _ in range(STEPS):
        word_of = (np.square(centres).sum(1) - 2 * p @ centres.T).argmin(1)
        sizes = np.bincount(word_of, minlength=len(centres))
        sums = np.stack([np.bincount(word_of, p[:, k], len(centres)) for k in range(p.shape[1])], 1)
        used = sizes[:, None] > 0
        centres = np.where(used, sums / np.maximum(sizes, 1)[:, None], centres).astype(np.float32)
    return replace(words, centres=centres, word_of=word_of, sizes=sizes)


def choose(words: Words, count: int = CHOSEN) -> Int64:
    """The words to show: the largest word of each set of classes, mixtures first, then single classes.

    The largest of the other words fill up the rest of ``count``.
    """
    largest: dict[frozenset[int], int] = {}
    for word, mixture in enumerate(words.mixtures()):
        largest.setdefault(frozenset(mixture), word)
    mixed = [word for mixture, word in largest.items() if len(mixture) > 1][:MOST_MIXED]
    taken = (mixed + [word for mixture, word in largest.items() if len(mixture) <= 1])[:count]
    rest = [word for word in range(len(words.sizes)) if word not in taken]
    return np.array((taken + rest)[:count])
