"""The demo's report in words and numbers, whatever they are."""

import math
from pathlib import Path
from typing import Any

from tembed.demo.evidence import Evidence
from tembed.files import write_file
from tembed.reporting.progress import clock
from tembed.training import Run


def write_report(path: Path, runs: dict[str, Run], evidence: Evidence) -> str:
    """Write the report as Markdown, and return it."""
    lines = [
        "# Two networks in a world with known parts",
        "",
        "Generated pictures of ten classes that share parts. The same short training for a network without the block",
        "and with it: one seed each, so a first look and no measurement of what the block is worth.",
        "",
        *_accuracies(runs),
        "",
        *_curves(runs),
        "",
        *_patches(evidence),
        "",
        "![curves, and the patches of a few test images](report.png)",
    ]
    text = "\n".join(lines) + "\n"
    write_file(path, text.encode())
    return text


def _accuracies(runs: dict[str, Run]) -> list[str]:
    results = {model: _result(run) for model, run in runs.items()}
    lines = ["| network | test accuracy | test images | best epoch | training time |", "|---|---|---|---|---|"]
    for model, result in results.items():
        lines.append(
            f"| {model} | {100 * result['test_accuracy']:.1f} % | {result['test']['images']:,} | "
            f"{result['best_epoch']} of {result['epochs']} | {clock(result['total_seconds'])} |"
        )
    (first, before), (second, after) = results.items()
    gain = after["test_accuracy"] - before["test_accuracy"]
    error = math.sqrt(sum(r["test_accuracy"] * (1 - r["test_accuracy"]) / r["test"]["images"] for r in (before, after)))
    lines += [
        "",
        f"{second} less {first}: {100 * gain:+.1f} points. Chance in the choice of test images alone is worth about "
        f"{100 * error:.1f} points (one standard error); another seed may change more than that.",
    ]
    return lines


def _curves(runs: dict[str, Run]) -> list[str]:
    lines = ["| epoch | " + " | ".join(f"{model} train | {model} validation" for model in runs) + " |"]
    lines.append("|---" * (1 + 2 * len(runs)) + "|")
    for records in zip(*(run.metrics for run in runs.values()), strict=True):
        cells = [f"{100 * r['accuracy']:.1f} % | {100 * r['val_accuracy']:.1f} %" for r in records]
        lines.append(f"| {records[0]['epoch']} | " + " | ".join(cells) + " |")
    return lines


def _patches(evidence: Evidence) -> list[str]:
    lines = [
        f"What the patches of the block say by themselves, over {evidence.images:,} test images. A patch covers a "
        "quarter of the image.",
        "",
        "| the patch shows | patches | mean probability of the true class | true class first |",
        "|---|---|---|---|",
    ]
    for kind in evidence.kinds:
        lines.append(f"| {kind.name} | {kind.patches:,} | {kind.belief:.3f} | {100 * kind.right:.1f} % |")
    lines += ["", "Some test images, the first of their classes:", ""]
    for example in evidence.examples:
        verdict = "rightly" if example.said == example.truth else "wrongly"
        lines.append(
            f"- {example.truth}: the head says {example.said}, {verdict}; its patches give the true class "
            f"{example.belief.min():.2f} to {example.belief.max():.2f}"
        )
    return lines


def _result(run: Run) -> dict[str, Any]:
    result = run.result
    assert result is not None
    return result
