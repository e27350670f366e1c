"""A page that shows every patch of an analysis as a picture on a map, in a folder that opens by double click."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
