"""Feature embedding by template matching as a ResNet block (BMVC 2022).

The names of the package are in ``__init__.pyi``. Each is imported when it is first used, so that unused ones cost no
time: ``tembed --help`` does not wait for torch.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
