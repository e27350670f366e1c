"""The analysis on disk: ``claims.json``, and a report with figures in Markdown and as one HTML page."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from tembed.common.files import make_folder, write_file, write_json
from tembed.lab.analysis.analysis_folder import EFFECTIVE_FIELD
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.compared_runs import KINDS, seed_counts
from tembed.lab.analysis.figures import figure_png, image_png
from tembed.lab.analysis.maps import FEWEST_POINTS
from tembed.lab.analysis.sprites import SIDE
from tembed.lab.analysis.untrained import COUNT
from tembed.lab.claims import measure_claims
from tembed.lab.claims.claim import Claim, Judgement, Verdict
from tembed.lab.report.document import (
    Details,
    Element,
    Heading,
    Items,
    Link,
    Picture,
    Table,
    Text,
    to_markdown,
    write_document,
)
from tembed.lab.report.dots import dot_plot
from tembed.lab.report.knock_out_elements import knock_out_elements, training_history
from tembed.lab.report.unit_elements import unit_elements

TITLE = "What the block sees"
UNITS_TITLE = "What BN-ReLU does"
"""For a network without patch scores."""
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "unclear", "no verdict")
HOW = (
    "Each claim is a part of a sentence of the paper: descriptive (something is so), mechanistic (what causes it), or "
    "not before (it is not so before the block). It is measured beside controls: what the same measure gives where the "
    "claim should be false. For these weights, a claim holds if its number is ahead of every control on half-samples "
    "of the test images; 95 % intervals cover the choice of images. For the method, the same is asked over trained "
    "seeds. Both are corrected for the number of claims (Holm). Other controls are only shown, and a claim that the "
    "paper does not make, or that cannot fail, gets no verdict."
)
OTHER = "other"
"""What stands in place of a sentence for a claim that names none."""
FIRST_LOOK = (
    "This is a first look (--fast-maps), with few images and with t-SNE of a part of the patches: intervals are wide, "
    "and more claims are unclear than in a full analysis."
)
LEGEND = (
    "The measured value and its controls, with 95 % intervals. Hollow dots: controls that are not beaten. Crosses: "
    "controls that are only shown."
)


def write_analysis(
    analysis: Analysis,
    out: str | Path,
    side: int = SIDE,
    page: str | None = None,
    claims: Sequence[Claim] | None = None,
) -> Path:
    """Write all files into ``out`` and return the path of ``report.md``; sprite maps are ``side`` pixels wide.

    ``page``: the path of the page with every patch (`tembed.lab.page`), relative to ``out``, for a link. ``claims``:
    what `measure_claims` returned; by default they are measured here.
    """
    out = Path(out)
    make_folder(out)
    if analysis.has_scores:
        points, counts = len(analysis.features.image_of), seed_counts(analysis.sources)
        analysis.progress.say(f"{points:,} patches of {len(analysis.sample):,} images; networks: {counts}")
    claims = measure_claims(analysis) if claims is None else claims
    if analysis.has_scores:
        write_json(out / EFFECTIVE_FIELD, analysis.effective_field.to_json())
    write_json(out / "claims.json", claims_record(analysis, claims))  # before the maps, which take the longest
    write_file(out / "verdicts.md", to_markdown([verdict_table(claims)]).encode())
    elements = compose(analysis, claims, side)
    if page is not None:
        elements.insert(1, Link("Explore every patch on a map", page))
    return write_document(elements, out, f"{_title(analysis)}: {analysis.source}")


def claims_record(analysis: Analysis, claims: Sequence[Claim]) -> dict[str, object]:
    """The content of ``claims.json``."""
    return {
        "run": analysis.source,
        "baseline": analysis.baseline_source,
        "seeds": {KINDS[kind]: [source for source, _ in found] for kind, found in analysis.sources.items()},
        "model": analysis.network.description.model,
        "data": analysis.data,
        "images": len(analysis.sample),
        "points": len(analysis.features.image_of) if analysis.has_scores else None,
        "seed": analysis.seed,
        "vital_signs": analysis.knock_outs.to_json() if analysis.has_scores else None,
        "effective_field": analysis.effective_field.to_json() if analysis.has_scores else None,
        "claims": [claim.to_json() for claim in claims],
    }


def compose(analysis: Analysis, claims: Sequence[Claim], side: int = SIDE) -> list[Element]:
    """The whole report, a section after the other: figures first. Without patch scores, units and claims only."""
    opening = [Heading(_title(analysis), 1), *introduction(analysis)]
    units = unit_elements(analysis.units, analysis.baseline_source)
    judged = [Heading("Claims"), *claim_elements(claims)]
    if not analysis.has_scores:
        return [*opening, *units, *judged]
    knock_outs = knock_out_elements(analysis.knock_outs, training_history(analysis.source))
    return [*opening, Heading("Figures"), *pictures(analysis, side), *knock_outs, *judged, *units]


def _title(analysis: Analysis) -> str:
    return TITLE if analysis.has_scores else UNITS_TITLE


def introduction(analysis: Analysis) -> list[Element]:
    """What was analysed."""
    model, images = analysis.network.description.model, len(analysis.sample)
    network = f"{model} ({analysis.source}) on {analysis.data}: {images:,} test images"
    if not analysis.has_scores:
        return [Text(f"{network}. This network has no patch scores, so the report is about its units only.")]
    features, baseline = analysis.features, analysis.baseline
    network += (
        f", {len(features.image_of):,} patches of {'x'.join(map(str, features.map_size))} maps with windows of "
        f"{'x'.join(map(str, features.window))}, seed {analysis.seed}."
    )
    accuracy = f"The head classifies {(features.head == features.labels).mean():.1%} of these images correctly."
    if baseline is not None:
        share = (baseline.head == baseline.labels).mean()
        accuracy += f" The baseline ({analysis.baseline_source}) classifies {share:.1%} correctly."
    seeds = f"Networks that are compared: {seed_counts(analysis.sources)}, and {COUNT} untrained ones."
    look = [Text(FIRST_LOOK)] if analysis.fast_maps else []
    return [Text(network), Text(f"{accuracy} {seeds}"), Text(analysis.effective_field.note), *look]


def verdict_table(claims: Sequence[Claim]) -> Table:
    """Both verdicts of each claim that was measured, by sentence and part; the README's table is this one.

    Claims of earlier versions have no sentence; then a table has no columns for it.
    """
    rows = []
    for group in by_sentence([claim for claim in claims if claim.was_measured]):
        for claim in group:
            sentence = (claim.sentence or OTHER) if claim is group[0] else ""
            weights = f"{claim.weights.verdict}: {claim.weights.why}"
            method = "" if claim.weights.verdict == "no verdict" else _brief(claim.method)
            rows.append((sentence, claim.part, claim.name, weights, method))
    header = ("sentence", "part", "claim", "for these weights", "for the method")
    first = 0 if any(claim.sentence for claim in claims) else 2
    return Table(header[first:], tuple(row[first:] for row in rows))


def by_sentence(claims: Sequence[Claim]) -> list[list[Claim]]:
    """The claims in groups with the same sentence, and those that are not the paper's by their text."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.sentence or claim.paper, []).append(claim)
    return list(found.values())


def _brief(judgement: Judgement) -> str:
    """The verdict and its reason; without a test, the number of seeds alone, which is the same for every claim."""
    return f"{judgement.verdict}: {judgement.why if judgement.p is not None else judgement.why.partition(',')[0]}"


def claim_elements(claims: Sequence[Claim]) -> list[Element]:
    """A table of the verdicts, each sentence with its claims and their dot plots, and what was not measured."""
    measured = [claim for claim in claims if claim.was_measured]
    missing = [claim for claim in claims if not claim.was_measured]
    counts = {verdict: sum(claim.weights.verdict == verdict for claim in measured) for verdict in VERDICTS}
    summary = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    found: list[Element] = [Text(HOW), Text(f"Verdicts for these weights: {summary}."), verdict_table(claims)]
    numbers = itertools.count(1)
    for group in by_sentence(measured):
        found += [Heading(group[0].sentence or OTHER, 3), Text(f"The paper: {group[0].paper}.")]
        for claim in group:
            found += _one_claim(claim, f"claim-{next(numbers)}")
    if missing:
        lines = tuple(f"{claim.name}. The paper: {claim.paper}. {claim.weights.why}." for claim in missing)
        found.append(Details(f"{len(missing)} claims that were not measured", (Items(lines),)))
    return found


def _one_claim(claim: Claim, file: str) -> list[Element]:
    """A claim: both verdicts, the dot plot, and the numbers."""
    verdicts = [f"For these weights, it {_says(claim.weights)}", f"For the method, it {_says(claim.method)}"]
    if claim.weights.verdict == "no verdict":
        verdicts = [f"No verdict: {claim.weights.why}."]
    rows: list[tuple[str, str, str, str]] = []
    if claim.value is not None:
        rows.append(("measured", str(claim.value), "", ""))
    for control in (*claim.controls, *claim.shown):
        title = control.title if control in claim.controls else f"only shown: {control.title}"
        rows.append((title, str(control.value), control.difference.signed(), f"{control.p:.2g}"))
    rows += [(f"not a control: {name}", str(value), "", "") for name, value in claim.notes.items()]
    elements: list[Element] = [Text(f"Measured: {claim.definition}.")]
    if rows:
        elements.append(Table(("", "value", "ahead by", "p"), tuple(rows)))
    has_plot = claim.value is not None and (claim.controls or claim.shown)
    drawn = [Picture(file, dot_plot(claim), LEGEND)] if has_plot else []
    return [
        Heading(f"{claim.name} ({claim.part})", 4),
        Items(tuple(verdicts)),
        *drawn,
        Details("Numbers", tuple(elements)),
    ]


def _says(judgement: Judgement) -> str:
    verb = judgement.verdict if judgement.verdict in ("holds", "does not hold") else f"is {judgement.verdict}"
    return f"{verb}: {judgement.why}."


def pictures(analysis: Analysis, side: int = SIDE) -> list[Element]:
    """The figures of the paper's analysis."""
    found: list[Element] = []
    holds = analysis.view.caption
    if analysis.has_maps:
        by = "by class" if analysis.groups is None else "by class and by super-class"
        caption = f"t-SNE of the features before and behind the block, {by} (Fig. 5)"
        found.append(Picture("geometry", figure_png(analysis.geometry()), caption))
    else:
        points = len(analysis.features.image_of)
        found.append(Text(f"{points} patches are too few for t-SNE maps, which need {FEWEST_POINTS}."))
    caption = f"16 visual words with their scores, each by four patches; a frame shows the true class (Fig. 7). {holds}"
    found.append(Picture("words", figure_png(analysis.chosen_words()), caption))
    if analysis.has_maps:
        picture = image_png(analysis.prediction_sprites(side))
        caption = f"patches by their class prediction (Fig. 6, left). {holds}"
        found.append(Picture("sprites-predictions", picture, caption))
    sprites = analysis.embedding_sprites(side) if analysis.has_maps else None
    if sprites is not None:
        caption = f"patches by embedding vector; solid tiles: class vectors, black: zero (Fig. 6, right). {holds}"
        found.append(Picture("sprites-embedding", image_png(sprites), caption))
    caption = f"the marks of the patches, shown on two of them (appendix B). {holds}"
    found.append(Picture("legend", figure_png(analysis.legend()), caption))
    every = Picture("words-all", figure_png(analysis.all_words()), f"all visual words, the largest first. {holds}")
    return [*found, Details(f"All {len(analysis.words.sizes)} visual words", (every,))]
