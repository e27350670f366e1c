"""The datasets of the paper (§4), any folder of images, and a generated world with known parts.

``catalogue`` has one record per dataset; ``getting`` and ``importing`` bring its images into the store on disk
(``store``, ``npy``, ``filelist``); ``splits`` and ``loading`` turn it into train, validation and test subsets
(``image_set``), after ``verification``; ``order`` and ``batches`` feed them to the training loop; ``checking`` and
``contact_sheets`` look at what is stored. ``readers/`` reads every published form of files, and ``parts/`` draws the
generated world.

Names are imported when first used, so that the processes that decode images do not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
