"""A trained network: what describes it, its weights on disk, predictions, and its forms for use elsewhere."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
