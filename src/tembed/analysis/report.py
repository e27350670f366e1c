"""The analysis on disk: figures, ``claims.json``, and a report in Markdown and as one HTML page."""

import base64
import html
import io
from pathlib import Path

from PIL import Image

from tembed.analysis.claims.claim import Claim
from tembed.analysis.figures import save_figure, save_image
from tembed.analysis.sprites import SIDE
from tembed.analysis.study import Analysis
from tembed.files import explained, write_file, write_json

SHOWN = 1600
"""Longer side of the pictures inside the HTML page, in pixels."""
CAPTIONS = {
    "geometry": "t-SNE of the features before the last stage, by class and by super-class (Fig. 5)",
    "sprites-predictions": "patches by their class prediction (Fig. 6, left)",
    "sprites-embedding": "patches by embedding vector; solid tiles: class vectors, black: zero (Fig. 6, right)",
    "words": "16 visual words with their scores; the frame is the true class of the image (Fig. 7)",
    "words-all": "all visual words, the largest first",
    "legend": "the marking of the patches, on two of them (appendix B)",
}
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-size: 14px }
td, th { border: 1px solid #ccc; padding: .4rem .6rem; text-align: left; vertical-align: top }
img { max-width: 100%; height: auto; border: 1px solid #ddd }
figure { margin: 2rem 0 }
figcaption { color: #444 }
.holds { background: #e3f1e3 }
.does-not-hold { background: #f9e1dc }
.unclear { background: #fbf3d5 }"""


def default_out(source: str) -> Path:
    """Inside a run folder; for other weights ``analysis/<name>``."""
    path = Path(source)
    if path.is_dir():
        return path / "analysis"
    return Path("analysis") / path.with_suffix("").as_posix().replace("/", "-").strip("-.")


def write_analysis(found: Analysis, out: str | Path, side: int = SIDE) -> Path:
    """Write all files into ``out`` and return the report's path; sprite maps are ``side`` pixels wide."""
    out = Path(out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    words = found.words  # the first thing that too few images cannot give
    say = found.progress.say
    say(f"{len(found.features.image_of):,} patches of {len(found.sample):,} images, {len(words.sizes)} words")
    save_figure(found.chosen_words(), out / "words.png")
    save_figure(found.all_words(), out / "words-all.png")
    save_figure(found.legend(), out / "legend.png")
    claims = found.claims
    write_json(out / "claims.json", claims_record(found, claims))
    save_figure(found.geometry(), out / "geometry.png")
    save_image(found.prediction_sprites(side), out / "sprites-predictions.png")
    sprites = found.embedding_sprites(side)
    if sprites is not None:
        save_image(sprites, out / "sprites-embedding.png")
    names = [name for name in CAPTIONS if name != "sprites-embedding" or sprites is not None]
    write_file(out / "report.md", markdown(found, claims, names).encode())
    write_file(out / "report.html", page(found, claims, names, out).encode())
    return out / "report.md"


def claims_record(found: Analysis, claims: list[Claim]) -> dict[str, object]:
    """The content of ``claims.json``."""
    return {
        "run": found.source,
        "baseline": found.baseline_source,
        "model": found.trained.recipe.model,
        "data": found.data,
        "images": len(found.sample),
        "points": len(found.features.image_of),
        "seed": found.seed,
        "claims": [claim.plain() for claim in claims],
    }


def introduction(found: Analysis) -> list[str]:
    """What was looked at, as paragraphs."""
    features = found.features
    first = (
        f"{found.trained.recipe.model} ({found.source}) on {found.data}: {len(found.sample):,} test images, "
        f"{len(features.image_of):,} patches of {features.map_size[0]}x{features.map_size[1]} maps with windows of "
        f"{features.window[0]}x{features.window[1]}, seed {found.seed}."
    )
    right = (features.head == features.labels).mean()
    second = f"The head classifies {right:.1%} of these images rightly."
    if found.baseline is not None:
        other = (found.baseline.head == found.baseline.labels).mean()
        second += f" The baseline ({found.baseline_source}) classifies {other:.1%} rightly."
    third = (
        "One trained network of each kind: the intervals (95 %) tell the chance in the choice of images, not that of "
        "another training. Verdicts rest on them: a claim holds if the interval of the difference lies on its side of "
        "zero."
    )
    return [first, second, third]


def verdicts(claims: list[Claim]) -> str:
    """How many claims came out how."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("holds", "does not hold")}
    rest = len(claims) - sum(counts.values())
    return f"{counts['holds']} hold, {counts['does not hold']} do not, {rest} are unclear, not measured or no claim."


def markdown(found: Analysis, claims: list[Claim], names: list[str]) -> str:
    """The report as Markdown."""
    lines = ["# What the block sees", ""]
    for paragraph in introduction(found):
        lines += [paragraph, ""]
    lines += [
        "## Claims as numbers",
        "",
        verdicts(claims),
        "",
        "| claim | verdict | numbers | why |",
        "|---|---|---|---|",
    ]
    lines += [f"| {c.name} | **{c.verdict}** | {'<br>'.join(_numbers(c))} | {c.why} |" for c in claims]
    lines += ["", "Definitions:", ""]
    for claim in claims:
        measured = claim.definition or f"not measured: {claim.why}"
        lines.append(f"- **{claim.name}.** The paper: {claim.paper}. Measured: {measured}.")
    lines += ["", "## Figures", ""]
    for name in names:
        lines += [f"![{CAPTIONS[name]}]({name}.png)", "", f"*{CAPTIONS[name]}*", ""]
    return "\n".join(lines)


def page(found: Analysis, claims: list[Claim], names: list[str], out: Path) -> str:
    """The report as one HTML file with its pictures inside; the large ones are smaller there."""
    e = html.escape
    rows = []
    for claim in claims:
        numbers = "<br>".join(map(e, _numbers(claim)))
        about = (
            f"The paper: {e(claim.paper)}.<br>Measured: {e(claim.definition)}." if claim.definition else e(claim.paper)
        )
        rows.append(
            f"<tr class='{claim.verdict.replace(' ', '-')}'><td><b>{e(claim.name)}</b></td>"
            f"<td><b>{e(claim.verdict)}</b></td><td>{numbers}</td><td>{e(claim.why)}</td><td>{about}</td></tr>"
        )
    figures = [
        f"<figure><a href='{name}.png'><img alt='{e(CAPTIONS[name])}' src='{_inside(out / f'{name}.png')}'></a>"
        f"<figcaption>{e(CAPTIONS[name])}</figcaption></figure>"
        for name in names
    ]
    return "\n".join(
        [
            "<!doctype html>",
            f"<html lang='en'><meta charset='utf-8'><title>What the block sees: {e(found.source)}</title>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<style>{STYLE}</style>",
            "<h1>What the block sees</h1>",
            *(f"<p>{e(paragraph)}</p>" for paragraph in introduction(found)),
            "<h2>Claims as numbers</h2>",
            f"<p>{e(verdicts(claims))}</p>",
            "<table><tr><th>claim</th><th>verdict</th><th>numbers</th><th>why</th><th>definition</th></tr>",
            *rows,
            "</table>",
            "<h2>Figures</h2>",
            *figures,
            "</html>",
            "",
        ]
    )


def _numbers(claim: Claim) -> list[str]:
    return [f"{column}: {measure}" for column, measure in claim.values.items()]


def _inside(path: Path) -> str:
    """A picture as a data address, as JPEG where that is shrunk."""
    with Image.open(path) as picture:
        if max(picture.size) <= SHOWN:
            return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
        small = picture.convert("RGB")
        small.thumbnail((SHOWN, SHOWN), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        small.save(content, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
