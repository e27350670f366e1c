"""The report on a network without patch scores: its units, and the claims about BN-ReLU (§3.2)."""

from collections.abc import Sequence
from pathlib import Path

from tembed.common.files import explained, write_json
from tembed.lab.analysis.units_of_networks import UnitAnalysis
from tembed.lab.claims import measure_claims
from tembed.lab.claims.claim import Claim
from tembed.lab.report.analysis_report import claim_elements
from tembed.lab.report.document import Element, Heading, Text, write_document
from tembed.lab.report.unit_elements import unit_elements
from tembed.lab.training.recipe import recipe_of
from tembed.models.registry import model_info
from tembed.trained.weights_file import load as load_network

TITLE = "What BN-ReLU does"


def has_scores(source: str | Path) -> bool:
    """Whether the network of a run, a weights file or shipped weights has patch scores to analyse."""
    return model_info(load_network(source).description.model).has_scores


def write_units(analysis: UnitAnalysis, out: str | Path, claims: Sequence[Claim] | None = None) -> Path:
    """Write ``report.md``, ``report.html``, ``claims.json`` and ``figures/``; return the path of ``report.md``.

    ``claims``: what `measure_claims` returned; by default they are measured here.
    """
    claims = measure_claims(analysis, "units") if claims is None else claims
    out = Path(out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    recipe = recipe_of(analysis.network)
    record = {
        "run": analysis.source,
        "model": recipe.model,
        "data": recipe.data,
        "images": len(analysis.sample),
        "claims": [claim.to_json() for claim in claims],
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
        *claim_elements(claims),
    ]
    return write_document(elements, out, f"{TITLE}: {analysis.source}")
