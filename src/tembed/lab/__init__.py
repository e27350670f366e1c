"""The laboratory (``pip install 'tembed[lab]'``): data, training, grids, analysis, claims, reports and the page.

A folder imports only folders that stand before it in this sentence. Nothing outside imports the laboratory, except for
the command line and the lazy list of names in ``tembed/__init__.py``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
