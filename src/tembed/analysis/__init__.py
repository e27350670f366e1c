"""The paper's analysis (§4.3, appendix B): features, maps, sprites, visual words, and its claims as numbers.

Names are imported on first use; t-SNE, words, probes and figures need ``pip install 'tembed[lab]'``.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.analysis.claims import Claim as Claim
    from tembed.analysis.claims import register_claim as register_claim
    from tembed.analysis.explanation import Explanation as Explanation
    from tembed.analysis.explanation import explain as explain
    from tembed.analysis.features import Features as Features
    from tembed.analysis.features import extract_features as extract_features
    from tembed.analysis.maps import tsne as tsne
    from tembed.analysis.report import write_analysis as write_analysis
    from tembed.analysis.study import Analysis as Analysis
    from tembed.analysis.study import analyze as analyze
    from tembed.analysis.vital.signs import VitalSigns as VitalSigns
    from tembed.analysis.vital.signs import vital_signs as vital_signs
    from tembed.analysis.words import Words as Words
    from tembed.analysis.words import find_words as find_words

_HOME = {
    "Analysis": "study",
    "Claim": "claims",
    "Explanation": "explanation",
    "Features": "features",
    "VitalSigns": "vital.signs",
    "Words": "words",
    "analyze": "study",
    "explain": "explanation",
    "extract_features": "features",
    "find_words": "words",
    "register_claim": "claims",
    "tsne": "maps",
    "vital_signs": "vital.signs",
    "write_analysis": "report",
}

__getattr__, __dir__, __all__ = lazy("tembed.analysis", _HOME)
