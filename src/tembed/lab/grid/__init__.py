"""Grids of runs: a TOML file to recipes, and engines that train them on this machine or on a Ray cluster."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
