"""The datasets of the paper's §4, any folder of images, and a world with known parts.

Names are imported when first used, so that neither the command line's help nor the processes that decode
images wait for torch.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.data.catalogue import super_classes as super_classes
    from tembed.data.checking import check as check
    from tembed.data.importing import import_images as import_images
    from tembed.data.loading import load as load
    from tembed.data.sheet import contact_sheet as contact_sheet
    from tembed.data.sources import get as get
    from tembed.data.storage import default_root as default_root
    from tembed.data.types import ImageSet as ImageSet
    from tembed.data.types import Splits as Splits

_HOME = {
    "ImageSet": "types",
    "Splits": "types",
    "check": "checking",
    "contact_sheet": "sheet",
    "default_root": "storage",
    "get": "sources",
    "import_images": "importing",
    "load": "loading",
    "super_classes": "catalogue",
}

__getattr__, __dir__, __all__ = lazy("tembed.data", _HOME)
