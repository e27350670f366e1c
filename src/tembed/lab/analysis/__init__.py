"""The paper's analysis (§4.3, appendix B): features, maps, sprites, visual words, knock-outs, explanations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
