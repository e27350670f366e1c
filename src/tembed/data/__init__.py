"""The datasets of the paper's §4, any folder of images, and a world with known parts.

Names are imported when first used, so that neither the command line's help nor the processes that decode
images wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tembed.data.catalogue import super_classes as super_classes
    from tembed.data.checking import check as check
    from tembed.data.images import ImageSet as ImageSet
    from tembed.data.images import Splits as Splits
    from tembed.data.importing import import_images as import_images
    from tembed.data.loading import load as load
    from tembed.data.sheet import contact_sheet as contact_sheet
    from tembed.data.sources import get as get
    from tembed.data.storage import default_root as default_root

_HOME = {
    "ImageSet": "tembed.data.images",
    "Splits": "tembed.data.images",
    "check": "tembed.data.checking",
    "contact_sheet": "tembed.data.sheet",
    "default_root": "tembed.data.storage",
    "get": "tembed.data.sources",
    "import_images": "tembed.data.importing",
    "load": "tembed.data.loading",
    "super_classes": "tembed.data.catalogue",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tembed.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
