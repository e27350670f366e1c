"""Visual words: clusters of the patches' class predictions, each shown by its nearest patch (Fig. 7)."""

from dataclasses import dataclass, replace

import numpy as np

from tembed.analysis.features import Features
from tembed.arrays import Floats, Int64
from tembed.errors import TembedError
from tembed.extras import needs

WORDS, CHOSEN = 100, 16
MIXED = 0.2
"""A word mixes the classes whose probability is above this."""
MOST_MIXED = 11
"""At most this many of the chosen words mix classes, which leaves room for words of a single class."""


@dataclass(frozen=True)
class Words:
    """``centres``: ``(K, C)``. ``points``: ``(K,)``, the patch nearest to each centre. ``word_of``: ``(P,)``, each
    patch's word. ``sizes``: ``(K,)``, the number of patches of each word. ``chosen``: the words to show first.
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
            f"{distinct} different patch predictions are too few for {count} visual words: give more `images_per_class`"
        )
    with needs("threadpoolctl").threadpool_limits(1):  # several threads would add in a varying order
        fitted = cluster.KMeans(count, n_init=1, random_state=seed).fit(p)
    sizes = np.bincount(fitted.labels_, minlength=count)
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    centres = fitted.cluster_centers_[order].astype(np.float32)
    points = np.array([np.square(p - centre).sum(1).argmin() for centre in centres])
    words = Words(centres, points, rank[fitted.labels_], sizes[order], np.zeros(0, np.int64))
    return replace(words, chosen=choose(words))


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
