"""The units of all networks that the claims about BN-ReLU compare."""

from collections.abc import Sequence
from dataclasses import dataclass

from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.units import Unit, measure_units
from tembed.lab.data.image_set import ImageSet
from tembed.lab.training.trained_networks import Trained


@dataclass(frozen=True)
class NetworkUnits:
    """``run``: seeds of the analysed run. ``baseline``: of the network without a block. ``untrained``: of the run's."""

    run: list[list[Unit]]
    baseline: list[list[Unit]]
    untrained: list[list[Unit]]


def units_of_networks(
    runs: Sequence[Trained],
    baselines: Sequence[Trained],
    blank: Sequence[Trained],
    images: ImageSet,
    progress: Progress = SILENT,
) -> NetworkUnits:
    """Measure all of them on the same images; ``blank``: the untrained ones."""
    run, baseline, untrained_units = (
        [measure_units(one, images, progress) for one in networks] for networks in (runs, baselines, blank)
    )
    return NetworkUnits(run, baseline, untrained_units)
