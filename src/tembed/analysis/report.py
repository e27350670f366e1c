"""The analysis on disk: ``claims.json``, and a report with figures in Markdown and as one HTML page."""

from pathlib import Path

from tembed.analysis.figures import figure_png, image_png
from tembed.analysis.sprites import SIDE
from tembed.analysis.study import Analysis
from tembed.claims import Claim
from tembed.files import explained, write_json
from tembed.reporting.document import Details, Element, Heading, Items, Picture, Table, Text, write_document

TITLE = "What the block sees"
INTERVALS = (
    "There is one trained network of each kind. The 95 % intervals cover the choice of images, not the variation "
    "between trainings. Verdicts are based on them: a claim holds if the interval of the difference lies on the "
    "claimed side of zero."
)


def default_out(source: str) -> Path:
    """``analysis`` inside a run folder; ``analysis/<name>`` for other weights."""
    path = Path(source)
    if path.is_dir():
        return path / "analysis"
    return Path("analysis") / path.with_suffix("").as_posix().replace("/", "-").strip("-.")


def write_analysis(analysis: Analysis, out: str | Path, side: int = SIDE) -> Path:
    """Write all files into ``out`` and return the path of ``report.md``; sprite maps are ``side`` pixels wide."""
    out = Path(out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    words = analysis.words  # first, because it fails on too few images
    points = len(analysis.features.image_of)
    analysis.progress.say(f"{points:,} patches of {len(analysis.sample):,} images, {len(words.sizes)} words")
    write_json(out / "claims.json", claims_record(analysis))  # before the maps, which take the longest
    return write_document(compose(analysis, side), out, f"{TITLE}: {analysis.source}")


def claims_record(analysis: Analysis) -> dict[str, object]:
    """The content of ``claims.json``."""
    return {
        "run": analysis.source,
        "baseline": analysis.baseline_source,
        "model": analysis.trained.recipe.model,
        "data": analysis.data,
        "images": len(analysis.sample),
        "points": len(analysis.features.image_of),
        "seed": analysis.seed,
        "claims": [claim.plain() for claim in analysis.claims],
    }


def compose(analysis: Analysis, side: int = SIDE) -> list[Element]:
    """The whole report."""
    return [
        Heading(TITLE, 1),
        *introduction(analysis),
        Heading("Claims as numbers"),
        *claim_elements(analysis.claims),
        Heading("Figures"),
        *pictures(analysis, side),
    ]


def introduction(analysis: Analysis) -> list[Element]:
    """What was analysed."""
    features, baseline = analysis.features, analysis.baseline
    network = (
        f"{analysis.trained.recipe.model} ({analysis.source}) on {analysis.data}: {len(analysis.sample):,} test "
        f"images, {len(features.image_of):,} patches of {'x'.join(map(str, features.map_size))} maps with windows of "
        f"{'x'.join(map(str, features.window))}, seed {analysis.seed}."
    )
    accuracy = f"The head classifies {(features.head == features.labels).mean():.1%} of these images correctly."
    if baseline is not None:
        share = (baseline.head == baseline.labels).mean()
        accuracy += f" The baseline ({analysis.baseline_source}) classifies {share:.1%} correctly."
    return [Text(network), Text(accuracy), Text(INTERVALS)]


def claim_elements(claims: list[Claim]) -> list[Element]:
    """A table of the claims, and below it how each one is measured."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("holds", "does not hold")}
    rest = len(claims) - sum(counts.values())
    summary = f"{counts['holds']} hold, {counts['does not hold']} do not, {rest} are unclear, not measured or no claim."
    rows = tuple(
        (
            claim.name,
            claim.verdict,
            tuple(f"{column}: {measure}" for column, measure in claim.values.items()),
            claim.why,
        )
        for claim in claims
    )
    definitions = tuple(
        f"{claim.name}. The paper: {claim.paper}. "
        + (f"Measured: {claim.definition}." if claim.definition else f"Not measured: {claim.why}.")
        for claim in claims
    )
    return [
        Text(summary),
        Table(("claim", "verdict", "numbers", "why"), rows, tuple(claim.verdict for claim in claims)),
        Details("What the paper says, and how each claim is measured", (Items(definitions),)),
    ]


def pictures(analysis: Analysis, side: int = SIDE) -> list[Element]:
    """The figures of the paper's analysis."""
    found = [
        Picture(
            "geometry",
            figure_png(analysis.geometry()),
            "t-SNE of the features before the last stage, by class and by super-class (Fig. 5)",
        ),
        Picture(
            "sprites-predictions",
            image_png(analysis.prediction_sprites(side)),
            "patches by their class prediction (Fig. 6, left)",
        ),
    ]
    sprites = analysis.embedding_sprites(side)
    if sprites is not None:
        caption = "patches by embedding vector; solid tiles: class vectors, black: zero (Fig. 6, right)"
        found.append(Picture("sprites-embedding", image_png(sprites), caption))
    return [
        *found,
        Picture(
            "words",
            figure_png(analysis.chosen_words()),
            "16 visual words with their scores; the frame shows the true class of the image (Fig. 7)",
        ),
        Picture("words-all", figure_png(analysis.all_words()), "all visual words, the largest first"),
        Picture(
            "legend",
            figure_png(analysis.legend()),
            "the marks of the patches, shown on two of them (appendix B)",
        ),
    ]
