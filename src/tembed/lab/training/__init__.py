"""Recipes, runs and the training loop (paper §4). A recipe alone needs no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
