"""Measure trained weights again, on any part of the dataset that they were trained on or another one."""

from pathlib import Path
from typing import Literal

from tembed.data import load
from tembed.data.batches import Batches
from tembed.errors import TembedError
from tembed.training.determinism import reproducible
from tembed.training.evaluation import Evaluation, evaluate_batches
from tembed.training.inputs import EVAL_BATCH
from tembed.training.progress import Watcher
from tembed.training.weights import load_trained

Part = Literal["train", "val", "test"]


def evaluate(
    source: str | Path,
    part: Part = "test",
    *,
    data: str | None = None,
    root: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Evaluation:
    """The best weights of a run, a weights file or shipped weights, on a part of their dataset.

    ``data`` names another dataset with the same classes. On the run's own test part this gives the result of the run.
    """
    trained = load_trained(source)
    recipe, watcher = trained.recipe, watcher or Watcher()
    splits = load(data or recipe.data, recipe.split, recipe.split_seed, root)
    images = {"train": splits.train, "val": splits.val, "test": splits.test}[part]
    if images.classes != trained.classes:
        raise TembedError(f"{splits.name} has other classes than {source} was trained for")
    expected = trained.about.get("data_sha256")
    if data is None and expected != splits.sha256:
        watcher.say(
            f"warning: {splits.name} is not the copy that these weights were trained on (sha256 {splits.sha256})"
        )
    batches = Batches(images, EVAL_BATCH, mean=trained.mean, std=trained.std, augment=False)
    try:
        with reproducible():
            return evaluate_batches(
                trained.model, batches, recipe.seed, lambda done, total: watcher.evaluated(part, done, total)
            )
    finally:
        watcher.end()
