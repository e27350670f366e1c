"""The datasets of the paper (§4), any folder of images, and a generated world with known parts.

``catalogue`` has one record per dataset; ``sources`` and ``importing`` bring its images into the store on disk
(``storage``, ``npy``, ``filelist``); ``splits`` and ``loading`` turn it into train, validation and test tensors
(``types``), after ``verification``; ``batches`` feeds them to the training loop; ``checking`` and ``sheet`` look at
what is stored. ``readers/`` reads every published file layout, and ``parts/`` draws the generated world.

Names are imported when first used, so that neither the command-line help nor the processes that decode images wait for
torch.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.data.batches import Batches as Batches
    from tembed.data.catalogue import Dataset as Dataset
    from tembed.data.catalogue import dataset as dataset
    from tembed.data.catalogue import list_datasets as list_datasets
    from tembed.data.catalogue import register_dataset as register_dataset
    from tembed.data.catalogue import super_classes as super_classes
    from tembed.data.checking import check as check
    from tembed.data.download import Download as Download
    from tembed.data.download import NpmPackage as NpmPackage
    from tembed.data.importing import import_images as import_images
    from tembed.data.loading import load as load
    from tembed.data.sheet import contact_sheet as contact_sheet
    from tembed.data.sources import get as get
    from tembed.data.storage import default_root as default_root
    from tembed.data.storage import remove_dataset as remove_dataset
    from tembed.data.storage import rename_dataset as rename_dataset
    from tembed.data.types import ImageSet as ImageSet
    from tembed.data.types import Splits as Splits

_HOME = {
    "Batches": "batches",
    "Dataset": "catalogue",
    "Download": "download",
    "ImageSet": "types",
    "NpmPackage": "download",
    "Splits": "types",
    "check": "checking",
    "contact_sheet": "sheet",
    "dataset": "catalogue",
    "default_root": "storage",
    "get": "sources",
    "import_images": "importing",
    "list_datasets": "catalogue",
    "load": "loading",
    "register_dataset": "catalogue",
    "remove_dataset": "storage",
    "rename_dataset": "storage",
    "super_classes": "catalogue",
}

__getattr__, __dir__, __all__ = lazy("tembed.data", _HOME)
