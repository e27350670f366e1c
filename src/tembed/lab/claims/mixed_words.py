"""Do combinations of classes make visual words of their own? (§4.3, Fig. 7)"""

from dataclasses import dataclass

import numpy as np

from tembed.common.arrays import Int64
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.effective_fields import pixels
from tembed.lab.analysis.features import Features
from tembed.lab.analysis.words import MIXED, Words, find_words, refitted
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK
from tembed.lab.claims.half_samples import Draws, HalfSamples
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.paper import WORDS


@dataclass(frozen=True)
class MixedWords:
    """The two shares of `shared_words`; how many words mix classes, and how many words of the run there are."""

    rarest: Draws
    outside: Draws
    mixed: int
    count: int


def mixed_words(subject: Subject) -> MixedWords:
    words = words_of(subject)
    mixed = sum(len(mixture) > 1 for mixture in words.mixtures())
    rarest, outside = shared_words(subject.features, words, subject.samples)
    return MixedWords(rarest, outside, mixed, len(subject.analysis.words.sizes))


def words_of(subject: Subject) -> Words:
    """The words of a network, at most as many as the run has."""
    analysis = subject.analysis
    if subject.features is analysis.features:
        return analysis.words
    return find_words(subject.features, len(analysis.words.sizes), analysis.seed)


def shared_words(features: Features, words: Words, samples: HalfSamples) -> tuple[Draws, Draws]:
    """The share of a mixed word's patches from the rarest class of its mixture, and from a class outside of it.

    In each half-sample, the centres are fitted again. Without mixed words the shares are 0 and 1 / C.
    """
    softmax, truth = features.required("softmax"), features.labels[features.image_of]
    rarest, outside = np.zeros(len(samples.rows)), np.full(len(samples.rows), 1 / samples.classes)
    for draw, row in enumerate(samples.of_points(features.per_image)):
        some = words if row.all() else refitted(words, softmax[row])
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


def _definition(analysis: Analysis) -> str:
    return (
        f"of the patches of a word whose centre has two or more classes above {MIXED}, the share that comes from "
        "images of the rarest of these classes; mean over the patches of all such words, out of "
        f"{len(analysis.words.sizes)}"
    )


def _notes(found: Found) -> dict[str, Measure]:
    own = found.own[0]
    counts = {"words that mix classes": own.mixed, "words of one class": own.count - own.mixed}
    return {name: Measure(float(count)) for name, count in counts.items()} | inside_windows(found)


def inside_windows(found: Found) -> dict[str, Measure]:
    """How much of what a word is made of can be seen in the pictures of its patches."""
    one = found.analysis.effective_field.nominal
    return {f"share of a patch's score that comes from its {pixels(one.size)}": Measure(one.inside, one.low, one.high)}


def _of_one_sort(words: MixedWords) -> str | None:
    if 0 < words.mixed < words.count:
        return None
    return "every word mixes classes: none is of a single class" if words.mixed else "no word mixes classes"


register_claim(
    ClaimSpec(
        "words that mix classes",
        WORDS,
        _definition,
        mixed_words,
        (BLANK,),
        shown=("-aux",),
        value=lambda result: result.rarest,
        beside=lambda found: {"classes outside the mixture": [one.outside for one in found.own]},
        notes=_notes,
        refuted=_of_one_sort,
    )
)
