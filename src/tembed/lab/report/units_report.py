"""The report on a network without patch scores: its units, and the claims about BN-ReLU (§3.2)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tembed.common.errors import TembedError
from tembed.common.files import explained, write_json
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.sampling import default_sample, sample
from tembed.lab.analysis.units_of_networks import NetworkUnits, units_of_networks
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.controls import CALIBRATION, UNTRAINED, untrained
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.soft_argmax import NO_UNITS, soft_argmax_claims
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.lab.report.analysis_report import claim_elements
from tembed.lab.report.document import Element, Heading, Text, write_document
from tembed.lab.report.unit_elements import unit_elements
from tembed.lab.training.trained_networks import Trained, as_trained, load_trained
from tembed.models.registry import model_info

TITLE = "What BN-ReLU does"


@dataclass(frozen=True)
class UnitAnalysis:
    """The units of a trained network on a sample of test images, and the claims about them."""

    source: str
    trained: Trained
    sample: ImageSet
    units: NetworkUnits
    claims: list[Claim]


def has_scores(source: str | Path) -> bool:
    """Whether the network of a run, a weights file or shipped weights has patch scores to analyse."""
    return model_info(load_trained(source).recipe.model).has_scores


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
    trained = as_trained(source, accelerator)
    recipe = trained.recipe
    splits = load(recipe.data, recipe.split, recipe.split_seed, root)
    if splits.test.classes != trained.classes:
        raise TembedError(f"{recipe.data} does not have the classes that {source} was trained on")
    if images_per_class is None:
        images = default_sample(splits.test, seed, progress, fast=fast)
    else:
        images = sample(splits.test, images_per_class, seed)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(splits.train))[:CALIBRATION])
    calibration = splits.train.subset(torch.from_numpy(chosen))
    blank = [untrained(trained, calibration, seed) for seed in range(UNTRAINED)]
    units = units_of_networks([trained], [], blank, images, progress)
    if not units.run[0]:
        raise TembedError(f"{source} is {recipe.model}: {NO_UNITS}, and it has no patch scores to look at")
    samples = HalfSamples.draw(images.labels.numpy(), len(trained.classes), seed)
    return UnitAnalysis(str(source), trained, images, units, corrected(soft_argmax_claims(units, samples)))


def write_units(analysis: UnitAnalysis, out: str | Path) -> Path:
    """Write ``report.md``, ``report.html``, ``claims.json`` and ``figures/``; return the path of ``report.md``."""
    out = Path(out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    recipe = analysis.trained.recipe
    record = {
        "run": analysis.source,
        "model": recipe.model,
        "data": recipe.data,
        "images": len(analysis.sample),
        "claims": [claim.plain() for claim in analysis.claims],
    }
    write_json(out / "claims.json", record)
    elements: list[Element] = [
        Heading(TITLE, 1),
        Text(
            f"{recipe.model} ({analysis.source}) on {recipe.data}: {len(analysis.sample):,} test images. This network "
            "has no patch scores, so the report is about its units only."
        ),
        *unit_elements(analysis.units),
        Heading("Claims"),
        *claim_elements(analysis.claims),
    ]
    return write_document(elements, out, f"{TITLE}: {analysis.source}")
