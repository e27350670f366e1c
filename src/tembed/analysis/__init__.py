"""Seeing what the block sees (§4.3, appendix B): features, maps, sprites, words, and the paper's claims as numbers.

Names are imported when first used; t-SNE, words, probes and figures need ``pip install 'tembed[analysis]'``.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.analysis.claims.claim import Claim as Claim
    from tembed.analysis.explanation import Explanation as Explanation
    from tembed.analysis.explanation import explain as explain
    from tembed.analysis.features import Features as Features
    from tembed.analysis.features import collect as collect
    from tembed.analysis.maps import tsne as tsne
    from tembed.analysis.report import write_analysis as write_analysis
    from tembed.analysis.study import Analysis as Analysis
    from tembed.analysis.study import analyze as analyze
    from tembed.analysis.words import Words as Words
    from tembed.analysis.words import find_words as find_words

_HOME = {
    "Analysis": "study",
    "Claim": "claims.claim",
    "Explanation": "explanation",
    "Features": "features",
    "Words": "words",
    "analyze": "study",
    "collect": "features",
    "explain": "explanation",
    "find_words": "words",
    "tsne": "maps",
    "write_analysis": "report",
}

__getattr__, __dir__, __all__ = lazy("tembed.analysis", _HOME)
