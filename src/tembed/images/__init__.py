"""From a picture to a tensor: decode, fit, resize, crop, flip and normalise.

``image_files`` decodes the bytes of an image file; ``pictures`` takes whatever a user gives, a path, a Pillow image or
an array; ``pixels`` crops, flips, normalises and resizes a batch. Names are imported when first used, so that the
processes that decode images do not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
