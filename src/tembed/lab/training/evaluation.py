"""Measures a model on a subset of a dataset: the head, and each patch by itself."""

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data.batches import Batches, evaluation_batches
from tembed.lab.data.device_batches import on_device
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.lab.data.subsets import SUBSETS, Subset
from tembed.lab.training.inputs import EVAL_BATCH
from tembed.lab.training.prediction_measures import Predictions
from tembed.lab.training.process_group import SINGLE_PROCESS, Forward, ProcessGroup
from tembed.lab.training.recipe import recipe_of
from tembed.lab.training.schedule import derived_seed
from tembed.models.network import Output, check_finite
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork, Loadable, as_network, name_of


@dataclass(frozen=True)
class Evaluation:
    """Means over the images. The patch numbers are None for a model without patch scores."""

    images: int
    accuracy: float
    head: float
    """cross-entropy of the head"""
    patches: float | None
    """mean cross-entropy of the patches"""
    patch_accuracy: float | None
    """share of the patches whose best class is that of the image"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pack_correct(correct: NDArray[np.bool_]) -> str:
    """Which images were classified correctly, in the order of their subset, as text for a JSON file."""
    return base64.b64encode(np.packbits(correct).tobytes()).decode()


def unpack_correct(text: str, images: int) -> NDArray[np.bool_]:
    """What `pack_correct` was given. Raises `TembedError` if it is not of this many images."""
    try:
        packed = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except ValueError as error:
        raise TembedError(f"its list of correct test images is damaged ({error})") from None
    if len(packed) != -(-images // 8):
        raise TembedError(f"it lists {8 * len(packed)} test images instead of {images}")
    return np.unpackbits(packed, count=images).astype(bool)


@dataclass(frozen=True)
class Detailed:
    """An evaluation with the predictions for each of its images."""

    evaluation: Evaluation
    predictions: Predictions
    images: ImageSet
    network: AnyNetwork
    data: str
    subset: str

    def __repr__(self) -> str:
        accuracy = 100 * self.evaluation.accuracy
        return f"Detailed({self.network.description.model} on {self.data}, {self.subset}: {accuracy:.2f} %)"


def evaluate(
    source: Loadable,
    subset: Subset = "test",
    *,
    data: str | None = None,
    root: str | Path | None = None,
    accelerator: str = "auto",
    progress: Progress | None = None,
) -> Evaluation:
    """Measure the best weights of a run, a weights file or shipped weights on a subset of their dataset.

    ``data`` names another dataset with the same classes. On the run's own test subset this gives the run's result.
    ``accelerator``: "cpu", "cuda", "mps", or "auto" for a GPU if there is one.
    """
    progress = progress or Progress()
    network, images, _ = _load(source, subset, data, root, accelerator, progress)
    return _measure(network, images, subset, progress, None)


def evaluate_in_detail(
    source: Loadable,
    subset: Subset = "test",
    *,
    data: str | None = None,
    root: str | Path | None = None,
    accelerator: str = "auto",
    progress: Progress | None = None,
) -> Detailed:
    """Like `evaluate`, with the predictions for each image."""
    progress = progress or Progress()
    network, images, name = _load(source, subset, data, root, accelerator, progress)
    logits: list[Tensor] = []
    patches: list[Tensor] = []

    def keep(output: Output) -> None:
        logits.append(output.logits.float())
        if output.scores is not None:
            patches.append(output.scores.float().softmax(1).mean((2, 3)))

    evaluation = _measure(network, images, subset, progress, keep)
    scores = torch.cat(logits).cpu()
    predictions = Predictions(
        classes=network.description.classes,
        labels=images.labels.numpy(),
        probabilities=scores.softmax(1).numpy(),
        losses=F.cross_entropy(scores, images.labels, reduction="none").numpy(),
        patches=torch.cat(patches).cpu().numpy() if patches else None,
        files=images.files or tuple(f"image {index}" for index in images.indices.tolist()),
    )
    return Detailed(evaluation, predictions, images, network, name, subset)


def _load(
    source: Loadable, subset: Subset, data: str | None, root: str | Path | None, accelerator: str, progress: Progress
) -> tuple[AnyNetwork, ImageSet, str]:
    """The network, the images to measure it on, and the name of their dataset."""
    if subset not in SUBSETS:
        raise TembedError(f"`subset` is {subset!r}; it must be train, val or test")
    network = as_network(source, accelerator)
    recipe = recipe_of(network)
    split = recipe.split if data in (None, recipe.data) else None  # other data is split in its own way
    splits = load(data or recipe.data, split, recipe.split_seed, root, progress)
    images = splits.subset(subset).resized(network.description.input_size)
    if images.classes != network.description.classes:
        raise TembedError(f"{splits.name} does not have the classes that {name_of(source)} was trained on")
    if recipe.image_size is None and images.size != splits.train.size:
        side, size = min(splits.train.size), network.description.input_size
        progress.say(f"images are resized from {side} to {size} pixels, the size of {name_of(source)}")
    expected = network.description.data_sha256
    if data is None and expected != splits.sha256:
        progress.say(
            f"warning: {splits.name} is not the copy that these weights were trained on (sha256 {splits.sha256})"
        )
    return network, images, splits.name


def _measure(
    network: AnyNetwork, images: ImageSet, subset: str, progress: Progress, keep: Callable[[Output], None] | None
) -> Evaluation:
    mean, std = network.description.normalisation
    group = ProcessGroup(next(network.parameters()).device)
    (batches,) = on_device(group.device, evaluation_batches(images, EVAL_BATCH, mean=mean, std=std))
    try:
        with reproducible(group.device):
            return evaluate_batches(
                network,
                batches,
                recipe_of(network).seed,
                lambda done, total: progress.update(subset, done, total),
                group=group,
                keep=keep,
            )
    finally:
        progress.close()


@torch.no_grad()
def evaluate_batches(
    model: nn.Module,
    batches: Batches,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
    *,
    group: ProcessGroup = SINGLE_PROCESS,
    forward: Forward | None = None,
    keep: Callable[[Output], None] | None = None,
) -> Evaluation:
    """Measure the model on all images of ``batches``, in evaluation mode.

    Args:
        seed: determines the noise of each batch; only the sampled maximizer uses it.
        watch: called after each batch with the numbers of images done and in total.
        group: each process measures its share, and all get the whole result.
        forward: how to call the model, if it is wrapped.
        keep: called with the output for each batch.
    """
    forward = forward or group.in_precision(model)
    was_training = model.training
    model.eval()
    total, done, patch_count = len(batches.images), 0, 0
    counts: list[int] = []
    measured: list[Tensor] = []  # of each batch: correct, head, patches, correct patches; read once, at the end
    with torch.random.fork_rng(devices=[]):
        for step, (images, labels) in enumerate(batches.epoch(0)):
            if len(labels):  # a share is empty if there are fewer images than processes
                images, labels = group.to_device(images, labels)
                torch.manual_seed(derived_seed(seed, "evaluation", step, *group.noise_key))
                output = forward(images)
                if keep is not None:
                    keep(output)
                head = F.cross_entropy(output.logits, labels, reduction="sum")
                patches = right_patches = torch.zeros_like(head)
                if output.scores is not None:
                    truth = labels[:, None, None].expand(-1, *output.scores.shape[2:])
                    patches = F.cross_entropy(output.scores, truth)
                    right_patches = (output.scores.argmax(1) == truth).sum()
                    patch_count += truth.numel()
                right = (output.logits.argmax(1) == labels).sum()
                wide = torch.promote_types(head.dtype, torch.float32)
                measured.append(torch.stack([value.to(wide) for value in (right, head, patches, right_patches)]))
                counts.append(len(labels))
            done += batches.order.count(step)
            if watch is not None:
                watch(done, total)
    model.train(was_training)
    rows = torch.stack(measured).cpu().tolist() if measured else []
    own = [0.0] * 4
    for count, (right, head, patches, right_patches) in zip(counts, rows, strict=True):
        own = [own[0] + right, own[1] + head, own[2] + patches * count, own[3] + right_patches]
    sums = group.sum([*own, patch_count])
    check_finite(torch.tensor(sums[1]))
    has_patches = sums[4] > 0
    return Evaluation(
        images=total,
        accuracy=sums[0] / total,
        head=sums[1] / total,
        patches=sums[2] / total if has_patches else None,
        patch_accuracy=sums[3] / sums[4] if has_patches else None,
    )
