"""How well a model does on a part of a dataset: the head, and each patch for itself."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F

from tembed.data import load
from tembed.data.batches import Batches
from tembed.errors import TembedError
from tembed.models import Network
from tembed.reporting.progress import Progress
from tembed.training.distributed.process_group import ALONE, Forward, Team
from tembed.training.environment import reproducible
from tembed.training.inputs import EVAL_BATCH
from tembed.training.schedule import derived_seed
from tembed.training.weights import load_trained


@dataclass(frozen=True)
class Evaluation:
    """Means over the images. Those of the patches are None for a model without scores."""

    images: int
    accuracy: float
    head: float
    """cross-entropy of the head"""
    patches: float | None
    """mean cross-entropy of the patches"""
    patch_accuracy: float | None
    """share of the patches whose own best class is the image's"""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@torch.no_grad()
def evaluate_batches(
    model: Network,
    batches: Batches,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
    *,
    team: Team = ALONE,
    forward: Forward | None = None,
) -> Evaluation:
    """The model on all images of ``batches``, in evaluation mode. ``watch`` is told the images done and all.

    ``seed`` is for the sampled maximizer only: the noise of each batch is a function of it. Of several processes each
    measures its share, by ``forward`` if the model is called in another way, and all get the whole result.
    """
    forward = forward or model
    was_training = model.training
    model.eval()
    correct = patch_correct = patch_count = 0
    head = patches = 0.0
    total, done = len(batches.images), 0
    with torch.random.fork_rng(devices=[]):
        for step, (images, labels) in enumerate(batches.epoch(0)):
            done += batches.count(step)
            if not len(labels):  # fewer images than processes
                _tell(watch, done, total)
                continue
            images, labels = team.place(images, labels)
            torch.manual_seed(derived_seed(seed, "evaluation", step, *team.mark))
            output = forward(images)
            correct += int((output.logits.argmax(1) == labels).sum())
            head += float(F.cross_entropy(output.logits, labels, reduction="sum"))
            if output.scores is not None:
                truth = labels[:, None, None].expand(-1, *output.scores.shape[2:])
                patch_correct += int((output.scores.argmax(1) == truth).sum())
                patch_count += truth.numel()
                patches += float(F.cross_entropy(output.scores, truth)) * len(labels)
            _tell(watch, done, total)
    model.train(was_training)
    sums = team.add([correct, head, patches, patch_correct, patch_count])
    has_patches = sums[4] > 0
    return Evaluation(
        images=total,
        accuracy=sums[0] / total,
        head=sums[1] / total,
        patches=sums[2] / total if has_patches else None,
        patch_accuracy=sums[3] / sums[4] if has_patches else None,
    )


def _tell(watch: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if watch is not None:
        watch(done, total)


Part = Literal["train", "val", "test"]


def evaluate(
    source: str | Path,
    part: Part = "test",
    *,
    data: str | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """The best weights of a run, a weights file or shipped weights, on a part of their dataset.

    ``data`` names another dataset with the same classes. On the run's own test part this gives the result of the run.
    """
    trained = load_trained(source)
    recipe, progress = trained.recipe, progress or Progress()
    splits = load(data or recipe.data, recipe.split, recipe.split_seed, root)
    images = {"train": splits.train, "val": splits.val, "test": splits.test}[part]
    if images.classes != trained.classes:
        raise TembedError(f"{splits.name} has other classes than {source} was trained for")
    expected = trained.about.get("data_sha256")
    if data is None and expected != splits.sha256:
        progress.say(
            f"warning: {splits.name} is not the copy that these weights were trained on (sha256 {splits.sha256})"
        )
    batches = Batches(images, EVAL_BATCH, mean=trained.mean, std=trained.std, augment=False)
    try:
        with reproducible():
            return evaluate_batches(
                trained.model, batches, recipe.seed, lambda done, total: progress.update(part, done, total)
            )
    finally:
        progress.close()
