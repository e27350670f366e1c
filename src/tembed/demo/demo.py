"""Train a network with and without the block on the parts world, and report what came of it.

The recipe is the fast one with batches of the paper's size, on 3,000 images: about 400 steps a network, some five
minutes for both on two cores. That is far too short to tell how much the block is worth; it shows what it does.
"""

from dataclasses import dataclass
from pathlib import Path

from tembed.data import get
from tembed.demo.evidence import Evidence, gather_evidence
from tembed.demo.picture import draw_report
from tembed.demo.report import write_report
from tembed.machine import WaitingPolicy
from tembed.reporting.progress import Progress
from tembed.training import Recipe, Run, load, train
from tembed.training.inputs import load_inputs

BASELINE, OURS = "rn26", "rn26-embed"


@dataclass(frozen=True)
class Demo:
    """What is trained."""

    epochs: int = 4
    """passes over the images, for each of the two networks"""
    train_images: int = 3000
    """of the 7,800 in the training part"""
    seed: int = 0
    """of both networks"""
    data: str = "parts"
    """a dataset that knows its parts"""

    def recipe(self, model: str) -> Recipe:
        """Both networks are trained alike."""
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
    progress: Progress | None = None,
    waiting: WaitingPolicy | None = None,
) -> str:
    """Train both, write ``report.md`` and ``report.png`` into ``out``, and return the report's text.

    Interrupted, the same call goes on where it was.
    """
    progress = progress or Progress()
    if demo.data == "parts":
        get("parts", root=root, progress=progress)
    runs: dict[str, Run] = {}
    for model in (BASELINE, OURS):
        runs[model] = train(demo.recipe(model), out / model, root=root, progress=progress, waiting=waiting)
    progress.say("looking at the patches of the test images")
    test = load_inputs(demo.recipe(OURS), root).test
    evidence: Evidence = gather_evidence(load(out / OURS), test)
    text = write_report(out / "report.md", runs, evidence)
    draw_report(out / "report.png", runs, evidence)
    return text
