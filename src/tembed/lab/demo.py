"""The demo: train a network with and without the block on the parts world, then analyse and report as usual.

The training is the `fast` preset with the paper's batch size on 3,000 images, about 280 steps per network. That is far
too short to measure how much the block improves accuracy; the analysis shows what its patches recognise.
"""

from dataclasses import dataclass
from pathlib import Path

from tembed.common.files import below
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.getting import get
from tembed.lab.page.builder import build_page
from tembed.lab.report.analysis_report import write_analysis
from tembed.lab.report.grid_report import write_grid_report
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run

BASELINE, WITH_BLOCK = "rn26", "rn26-embed"
SPRITE_SIDE = 1536
"""Pixels of the sprite maps, which are much larger in an ordinary analysis."""


@dataclass(frozen=True)
class Demo:
    """What is trained, and how many images are analysed."""

    epochs: int = 3
    """passes over the training images, for each of the two networks"""
    train_images: int = 3000
    """how many of the 7,800 training images to use"""
    seed: int = 0
    """seed of both networks and of the analysis"""
    images_per_class: int = 8
    """test images of each class that are analysed"""
    data: str = "parts"
    """a dataset that records which part each pixel shows"""

    def recipe(self, model: str) -> Recipe:
        """The training, the same for both networks."""
        return Recipe.fast(
            model,
            self.data,
            epochs=self.epochs,
            train_images=self.train_images,
            seed=self.seed,
            batch_size=32,
            lr=1e-2,
        )


def run_demo(
    demo: Demo,
    out: Path,
    *,
    root: Path | None = None,
    progress: Progress = SILENT,
) -> str:
    """Train both networks, write ``out/analysis`` and ``out/report``, and return a summary.

    The same call resumes an interrupted demo.
    """
    analysis, report = below(out, "analysis"), below(out, "report")
    if dataset(demo.data).generate is not None:
        get(demo.data, root=root, progress=progress)
    folders = {model: below(out, model) for model in (BASELINE, WITH_BLOCK)}
    runs = {model: train(demo.recipe(model), folder, root=root, progress=progress) for model, folder in folders.items()}
    progress.say(f"analysing {WITH_BLOCK} beside {BASELINE}")
    with progress:
        found = analyze(
            out / WITH_BLOCK,
            baseline=out / BASELINE,
            images_per_class=demo.images_per_class,
            seed=demo.seed,
            cache=below(analysis, "cache"),
            root=root,
            progress=progress,
        )
        write_analysis(found, analysis, side=SPRITE_SIDE, page="page/index.html")
        page = build_page(found, below(analysis, "page"))
    write_grid_report([out / BASELINE, out / WITH_BLOCK], report)
    return "\n".join([*summary(runs, out), f"every patch on a map: {page.absolute().as_uri()}"])


def summary(runs: dict[str, Run], out: Path) -> list[str]:
    """Lines with both accuracies and the paths of both reports."""
    width, accuracies, lines = max(map(len, runs)), [], []
    for model, run in runs.items():
        result = run.result
        assert result is not None
        accuracies.append(100 * result["test_accuracy"])
        images = f"{result['test']['images']:,} images"
        lines.append(f"{model:<{width}}  test accuracy {accuracies[-1]:.1f} % ({images}, one seed)")
    gain = accuracies[1] - accuracies[0]
    lines += [
        f"The difference of {gain:+.1f} points comes from one seed each and a short training: it does not show how "
        "much the block improves accuracy.",
        f"analysis: {out / 'analysis' / 'report.html'}",
        f"report: {out / 'report' / 'report.html'}",
    ]
    return lines
