"""The knock-outs in a report: in words, as a table, and over the training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError
from tembed.common.palette import BLOCK
from tembed.lab.analysis.knock_outs import LEVEL, KnockOut, KnockOuts, p_text
from tembed.lab.report.charts import Series, chart
from tembed.lab.report.document import Element, Heading, Picture, Table, Text
from tembed.lab.training.run import Run

METHOD = (
    "Each row replaces a part of the block and classifies the same images again. Cost: how many points of accuracy the "
    "head loses, with a 95 % interval over the choice of images. p: exact McNemar test, or a paired normal test on the "
    "means where a replacement has several draws. Another image's f': the class vectors are mixed with that image's "
    "weights. Permuted: no class keeps its vector."
)


def knock_out_elements(found: KnockOuts, history: Sequence[dict[str, Any]] = ()) -> list[Element]:
    """The section of a report. ``history``: the metrics of the epochs, for the figure over the training."""
    elements: list[Element] = [Heading("Is the block at work?"), Text(found.words())]
    if found.knock_outs:
        rows = tuple(_row(name, out) for name, out in found.knock_outs.items())
        intact = ("intact", f"{found.accuracy:.2%}", "-", "-", "-")
        elements += [Table(("block", "head's accuracy", "cost, points", "p", "verdict"), (intact, *rows)), Text(METHOD)]
    elements.append(Table(("vital sign", "value"), tuple(_numbers(found))))
    return elements + share_figure(history)


def share_figure(history: Sequence[dict[str, Any]]) -> list[Element]:
    """The share of f' after each epoch, if the training logged it for two or more."""
    points = tuple(
        (float(epoch["epoch"]), 100 * epoch["variance_share"], 0.0)
        for epoch in history
        if epoch["variance_share"] is not None
    )
    if len(points) < 2:
        return []
    svg = chart(
        [Series("f'", points, BLOCK, dots=len(points) < 20)], "epoch", "share of the variance, %", from_zero=True
    )
    caption = "Share of f' in the variance of what the block writes, on the validation images after each epoch."
    return [Picture("vital-signs", svg, caption)]


def training_history(source: str) -> list[dict[str, Any]]:
    """The metrics of a run folder; empty for other weights, and if they cannot be read."""
    if not Path(source).is_dir():
        return []
    try:
        return Run.open(source).metrics
    except TembedError:
        return []


def _row(name: str, out: KnockOut) -> tuple[str, ...]:
    margin = 1.96 * out.noise
    verdict = "costs accuracy" if out.costs else "improves the head" if out.p < LEVEL else "within sampling noise"
    return (
        f"{name} ({out.draws} draws)" if out.draws > 1 else name,
        f"{out.accuracy:.2%}",
        f"{100 * out.cost:+.2f} [{100 * (out.cost - margin):+.2f}, {100 * (out.cost + margin):+.2f}]",
        p_text(out.p).removeprefix("p = ").removeprefix("p "),
        verdict,
    )


def _numbers(found: KnockOuts) -> list[tuple[str, str]]:
    rows = []
    if found.share is not None:
        rows.append(("share of f' in the variance of what the block writes", f"{found.share:.2%}"))
    if found.unmatched is not None:
        rows.append(("patches that match no class", f"{found.unmatched:.2%}"))
    if found.mixing_sum is not None:
        low, median, high = found.mixing_sum
        rows.append(("sum of a patch's mixing weights: median [quartiles]", f"{median:.2f} [{low:.2f}, {high:.2f}]"))
    if found.gradient_norms is not None:
        head, patches = found.gradient_norms
        rows.append(("gradient in front of the block: norm for the head's loss", f"{head:.3g}"))
        rows.append(("the same for the patches' loss", f"{patches:.3g}"))
    if found.gradient_cosine is not None:
        rows.append(("cosine of the two gradients", f"{found.gradient_cosine:+.3f}"))
    return rows or [("gradients", "none: everything in front of the block is frozen")]
