"""Do combinations of classes make visual words of their own? (§4.3, Fig. 7)"""

from tembed.analysis.claims import register_claim
from tembed.analysis.words import MIXED, Words
from tembed.claims import Claim, Measure


def word_claims(words: Words, baseline: Words | None) -> list[Claim]:
    """One claim: how many words mix classes."""
    values = {}
    for column, found in (("baseline", baseline), ("block", words)):
        if found is not None:
            values[column] = Measure(float(sum(len(mixture) > 1 for mixture in found.mixtures())))
    mixed, count = values["block"].value, len(words.sizes)
    return [
        Claim(
            "words that mix classes",
            "combinations of the classes make words of their own, in addition to words of a single class",
            f"of {count} words, those whose centre has two or more classes above {MIXED}",
            "holds" if 0 < mixed < count else "does not hold",
            f"{mixed:.0f} of {count} words mix two or more classes, {count - mixed:.0f} do not",
            values,
        )
    ]


register_claim("words", lambda analysis: word_claims(analysis.words, analysis.baseline_words))
