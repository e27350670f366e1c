"""Do combinations of classes make visual words of their own? (§4.3, Fig. 7)"""

from dataclasses import replace

import numpy as np

from tembed.common.arrays import Int64
from tembed.lab.analysis.features import Features
from tembed.lab.analysis.words import MIXED, Words, find_words, refitted
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Judgement, Measure
from tembed.lab.claims.controls import Networks
from tembed.lab.claims.half_samples import Draws, Evidence, HalfSamples, claim, measure

NAME = "words that mix classes"
PAPER = "combinations of the classes make words of their own, in addition to words of a single class"


def word_claims(networks: Networks, words: Words, samples: HalfSamples, seed: int = 0) -> list[Claim]:
    """One claim: patches of a word that mixes classes come from each of these classes. ``words``: those of the run."""
    count = len(words.sizes)
    words_of = [words, *(find_words(one, count, seed) for one in networks.run[1:])]
    found = [
        shared_words(one, its, some)
        for one, its, some in zip(networks.run, words_of, samples.over_seeds(len(words_of)), strict=True)
    ]
    within = {"classes outside the mixture": [outside for _, outside in found]}
    blank = [shared_words(one, find_words(one, count, seed), samples)[0] for one in networks.untrained]
    mixed, *others = (sum(len(mixture) > 1 for mixture in its.mixtures()) for its in words_of)
    notes = {"words that mix classes": Measure(float(mixed)), "words of one class": Measure(float(count - mixed))}
    if networks.aux:
        aux = shared_words(networks.aux[0], find_words(networks.aux[0], count, seed), samples)[0]
        notes["the same in -aux"] = measure(aux)
    definition = (
        f"of the patches of a word whose centre has two or more classes above {MIXED}, the share that comes from "
        f"images of the rarest of these classes; mean over the patches of all such words, out of {count}"
    )
    made = claim(NAME, PAPER, definition, Evidence([own for own, _ in found], within, untrained=blank), notes=notes)
    if not 0 < mixed < count:
        what = "no word mixes classes" if mixed == 0 else "every word mixes classes: none is of a single class"
        made = replace(made, weights=Judgement("does not hold", what))
    failed = sum(not 0 < number < count for number in (mixed, *others))
    if failed and made.method.verdict == "holds":
        why = f"in {failed} of {len(words_of)} seeds, all words mix classes or none does"
        made = replace(made, method=Judgement("does not hold", why))
    return [made]


def shared_words(features: Features, words: Words, samples: HalfSamples) -> tuple[Draws, Draws]:
    """The share of a mixed word's patches from the rarest class of its mixture, and from a class outside of it.

    In each half-sample, the centres are fitted again. Without mixed words the shares are 0 and 1 / C.
    """
    assert features.softmax is not None
    truth = features.labels[features.image_of]
    rarest, outside = np.zeros(len(samples.rows)), np.full(len(samples.rows), 1 / samples.classes)
    for draw, row in enumerate(samples.of_points(features.per_image)):
        some = words if row.all() else refitted(words, features.softmax[row])
        counts = np.zeros((len(some.centres), samples.classes))
        np.add.at(counts, (some.word_of, truth[row]), 1)
        shares = [_shares(counts[word], mixture) for word, mixture in enumerate(some.mixtures()) if len(mixture) > 1]
        total = sum(size for size, _, _ in shares)
        if total:
            rarest[draw] = sum(size * inside for size, inside, _ in shares) / total
            outside[draw] = sum(size * other for size, _, other in shares) / total
    return rarest, outside


def _shares(counts: Int64, mixture: tuple[int, ...]) -> tuple[float, float, float]:
    """The patches of a word, the smallest share of a class of its mixture, and the mean share of the other classes."""
    size = float(counts.sum())
    if not size:
        return 0.0, 0.0, 0.0
    inside = counts[list(mixture)] / size
    return size, float(inside.min()), float((1 - inside.sum()) / max(1, len(counts) - len(mixture)))


register_claim(
    "words", lambda analysis: word_claims(analysis.networks, analysis.words, analysis.samples, analysis.seed)
)
