"""The units of all networks that the claims about BN-ReLU compare, and the analysis of a network without scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.compared_runs import RUN, UNTRAINED, ByKind
from tembed.lab.analysis.sampling import default_sample, sample
from tembed.lab.analysis.units import Unit, measure_units
from tembed.lab.analysis.untrained import calibration_images, untrained_networks
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.trained.weights_file import AnyNetwork, as_network

NO_UNITS = "in this network, no BN-ReLU follows a 3x3 convolution"


@dataclass(frozen=True)
class UnitAnalysis:
    """The units of a trained network and of untrained ones on a sample of test images."""

    source: str
    network: AnyNetwork
    sample: ImageSet
    units: ByKind[list[Unit]]
    seed: int
    progress: Progress = SILENT

    @property
    def classes(self) -> tuple[str, ...]:
        return self.network.description.classes


def units_by_kind(
    networks: ByKind[AnyNetwork], images: ImageSet, progress: Progress = SILENT
) -> Mapping[str, list[list[Unit]]]:
    """The units of all networks, measured on the same images."""
    return {kind: [measure_units(one, images, progress) for one in found] for kind, found in networks.items()}


def analyze_units(
    source: str | Path,
    *,
    images_per_class: int | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    progress: Progress = SILENT,
    fast: bool = False,
    accelerator: str = "auto",
) -> UnitAnalysis:
    """Measure the units of a run, a weights file or shipped weights on test images of its dataset.

    ``fast``: a first look with fewer images. ``accelerator``: "cpu", "cuda", or "auto" for a GPU if there is one.
    """
    network = as_network(source, accelerator)
    recipe = recipe_of(network)
    splits = load(recipe.data, recipe.split, recipe.split_seed, root)
    if splits.test.classes != network.description.classes:
        raise TembedError(f"{recipe.data} does not have the classes that {source} was trained on")
    if images_per_class is None:
        images = default_sample(splits.test, seed, progress, fast=fast)
    else:
        images = sample(splits.test, images_per_class, seed)
    units = units_by_kind({RUN: [network]}, images, progress)
    if not units[RUN][0]:
        raise TembedError(f"{source} is {recipe.model}: {NO_UNITS}, and it has no patch scores to look at")
    untrained = untrained_networks(network, calibration_images(splits.train, seed))
    units = {**units, **units_by_kind({UNTRAINED: untrained}, images, progress)}
    return UnitAnalysis(str(source), network, images, units, seed, progress)
