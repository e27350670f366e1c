"""Is the block at work? Its share of what it writes, and what the network loses without it.

The block writes ``shortcut(f) + f'`` (or ``cat[f, f']``). ``f'`` is a mixture of the class vectors. A block can look
trained, with good patch scores, while the rest of the network ignores ``f'``. A *knock-out* replaces a part of the
block and classifies the same images again. The replacements are hooks in context managers, so that none outlives its
``with``.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tembed.block import DeepSupervision, FeatureEmbedding, changed_mixing
from tembed.common.errors import TembedError
from tembed.common.extras import needs
from tembed.common.modes import evaluation_mode
from tembed.common.progress import SILENT, Progress
from tembed.images.pixels import normalised
from tembed.lab.analysis.score_gradients import BATCH, Block, Fetch, gradients, logits_of
from tembed.lab.data.image_set import ImageSet
from tembed.lab.training.variance_share import measured_share
from tembed.models.network import Network
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork

IMAGES, IMAGES_UNCUT, IMAGES_FAST = 4000, 1000, 250
"""Maximum number of images of `trained_knock_outs`; fewer where every knock-out needs the whole network."""
QUARTERS = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
QUANTILE_POINTS = 1_000_000
"""Maximum number of patches behind quartiles; torch accepts at most 16 million."""
DRAWS = 3
"""Draws of each random knock-out."""
LEVEL = 0.05
IDLE = 0.005
"""The block is idle if the cost of f' = 0 is surely below this share of the images."""
WHEN_IDLE = (
    "try more epochs, or --norm-shortcut (-embed networks), or take the patch scores as a reading of the network"
)
"""What to do about an idle block (docs/vital-signs.md)."""

NO_EMBEDDING, OTHERS, PERMUTED, NO_SHORTCUT = (
    "f' = 0",
    "f' of another image",
    "class vectors permuted",
    "shortcut = 0",
)

Change = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class KnockOut:
    """Accuracy with a part of the block replaced, on the same images as the intact network.

    ``cost``: intact minus knocked-out accuracy. ``noise``: its standard error over the choice of images. ``p``: the
    two-sided p-value of "no cost", by the exact McNemar test. A random knock-out has several draws: ``accuracy`` and
    ``cost`` are means over them, and ``p`` is that of the paired normal test on each image's mean over them.
    """

    accuracy: float
    cost: float
    noise: float
    p: float
    draws: int = 1

    @property
    def costs(self) -> bool:
        """Whether the cost is more than sampling noise."""
        return self.cost > 0 and self.p < LEVEL


@dataclass(frozen=True)
class KnockOuts:
    """What `measure_knock_outs` finds on ``images`` images; None where the network has no such thing.

    ``share``: sum over channels of Var f' / (Var f' + Var of the shortcut), over images and pixels. ``unmatched``:
    share of the patches whose mixing weights are all 0. ``mixing_sum``: quartiles of the sum of a patch's mixing
    weights. ``gradient_norms``: of the head's and the patches' mean loss, for the weights in front of the block.
    ``gradient_cosine``: of these two gradients.
    """

    images: int
    accuracy: float
    share: float | None = None
    knock_outs: dict[str, KnockOut] = field(default_factory=dict)
    unmatched: float | None = None
    mixing_sum: tuple[float, float, float] | None = None
    gradient_norms: tuple[float, float] | None = None
    gradient_cosine: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @property
    def state(self) -> Literal["at work", "idle", "undecided"]:
        """Whether the head needs f': its removal costs something, surely less than `IDLE`, or neither is sure."""
        out = self.knock_outs[NO_EMBEDDING]
        if out.p < LEVEL:
            return "at work"
        return "idle" if out.cost + self._margin < IDLE else "undecided"

    @property
    def _margin(self) -> float:
        """Half of the 95 % interval of the cost of f' = 0. If no image changed: the rule of three."""
        return 1.96 * self.knock_outs[NO_EMBEDDING].noise or 3 / self.images

    def at_work(self) -> str:
        """Whether the block is at work, in one line with the cost of f' = 0 and its interval."""
        out = self.knock_outs[NO_EMBEDDING]
        low, high = (100 * (out.cost + sign * self._margin) for sign in (-1, 1))
        points = f"{100 * out.cost:.2f} points [{low:.2f}, {high:.2f}]"
        found = f"without f' the head loses {points} on {self.images:,} images"
        if self.state == "at work":
            return f"the block is at work{', but does harm' if out.cost < 0 else ''}: {found}"
        if self.state == "idle":
            return f"the block is idle: {found}; {WHEN_IDLE}"
        return f"whether the block is at work is undecided: {found}; more images would tell"

    def words(self) -> str:
        """Whether the head needs f', in one or two sentences."""
        if NO_EMBEDDING not in self.knock_outs:
            return "The patch scores are not fed back, so there is no f' to remove."
        out = self.knock_outs[NO_EMBEDDING]
        margin = 1.96 * out.noise
        found = (
            f"With f' the head classifies {self.accuracy:.2%} of {self.images:,} images correctly, without it "
            f"{out.accuracy:.2%}: f' is worth {100 * out.cost:.2f} points "
            f"[{100 * (out.cost - margin):.2f}, {100 * (out.cost + margin):.2f}]"
        )
        if out.costs:
            return f"{found}. Removing f' costs more than sampling noise ({p_text(out.p)})."
        if out.cost < 0 and out.p < LEVEL:
            return f"{found}. Removing f' improves the head ({p_text(out.p)})."
        return (
            f"{found}. Removing f' costs less than sampling noise ({p_text(out.p)}): on these images the head does not "
            "need it."
        )


def find_block(model: nn.Module) -> Block:
    """The block of a network of ours, or of one that a block is attached to."""
    found = [module for module in model.modules() if isinstance(module, FeatureEmbedding | DeepSupervision)]
    if not found:
        raise TembedError("the network has no block, so it has no knock-outs: give a network with patch scores")
    if len(found) > 1:
        raise TembedError(f"the network has {len(found)} blocks; knock-outs are those of a single block")
    return found[0]


def measure_knock_outs(
    model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, progress: Progress = SILENT
) -> KnockOuts:
    """Measure the block of ``model`` in evaluation mode on normalised ``images (N, 3, H, W)`` with ``labels (N,)``.

    ``model`` is a network of ours or one that a block is attached to. ``seed`` draws the order of the images, which
    decides the other image, and the permutations of the class vectors. The model is unchanged afterwards.
    """
    if not images.is_floating_point():
        raise TembedError(f"`images` are {images.dtype}; they must be normalised as for training")
    if len(images) < 2 or len(images) != len(labels):
        raise TembedError(
            f"there are {len(images)} images and {len(labels)} labels: give one label for each of at least 2 images, "
            "because one image's f' is exchanged for another's"
        )
    return _measure(model, lambda which: images[which], labels, seed, progress)


def trained_knock_outs(
    network: AnyNetwork, images: ImageSet, seed: int = 0, progress: Progress = SILENT, *, fast: bool = False
) -> KnockOuts:
    """The knock-outs of a trained network on random images of a subset: at most `IMAGES`, or `IMAGES_UNCUT`.

    ``fast``: at most `IMAGES_FAST`.
    """
    return _of_some(network, images, seed, progress, IMAGES_FAST if fast else IMAGES, _measure)


def without_embedding(
    network: AnyNetwork, images: ImageSet, seed: int = 0, progress: Progress = SILENT, *, most: int = IMAGES
) -> KnockOuts | None:
    """The knock-out ``f' = 0`` alone, which takes a fraction of the time; None if nothing is fed back.

    ``most``: use at most this many images.
    """
    if not any(isinstance(module, FeatureEmbedding) for module in network.modules()) or len(images) < 2:
        return None
    return _of_some(network, images, seed, progress, most, partial(_measure, only=(NO_EMBEDDING,)))


def _of_some(
    network: AnyNetwork, images: ImageSet, seed: int, progress: Progress, most: int, measure: Callable[..., KnockOuts]
) -> KnockOuts:
    """``measure`` on random images of a subset."""
    most = most if _is_cut(network, find_block(network)) else min(most, IMAGES_UNCUT)
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:most]

    def fetch(which: Tensor) -> Tensor:
        return normalised(images.pixels(chosen[which].numpy()), *network.description.normalisation)

    with reproducible(next(network.parameters()).device):
        return measure(network, fetch, images.labels[chosen], seed, progress)


def _measure(
    model: nn.Module,
    fetch: Fetch,
    labels: Tensor,
    seed: int,
    progress: Progress,
    only: tuple[str, ...] | None = None,
) -> KnockOuts:
    """All knock-outs and the gradients, or these knock-outs alone."""
    block = find_block(model)
    device = block.match.score.weight.device
    labels = labels.to(device)

    def moved(which: Tensor) -> Tensor:
        return fetch(which).to(device)

    with evaluation_mode(model), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for maximizers that draw noise
        found = _classify(model, block, moved, labels, seed, progress, only)
        if only is None:
            norms, cosine = gradients(model, block, moved, labels, seed)
            found |= {"gradient_norms": norms, "gradient_cosine": cosine}
    return KnockOuts(images=len(labels), **found)


# --- accuracy with and without parts of the block


@torch.no_grad()
def _classify(
    model: nn.Module,
    block: Block,
    fetch: Fetch,
    labels: Tensor,
    seed: int,
    progress: Progress,
    only: tuple[str, ...] | None,
) -> dict[str, Any]:
    """One pass over the images in random order. Each batch goes through the network once for each knock-out."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)  # neighbours in a dataset's order share their class
    trunk, head = _cut(model, block)
    changes = replacements(block, generator) if isinstance(block, FeatureEmbedding) else {}
    if only is not None:
        changes = {name: changes[name] for name in only}
    outcomes: dict[str, list[list[Tensor]]] = {name: [[] for _ in draws] for name, draws in changes.items()}
    intact, sums = [], []
    with measured_share(model) as share:
        done = 0
        for batch in _batches(order):
            f, truth = trunk(fetch(batch)), labels[batch]
            intact.append(head(f).argmax(1) == truth)
            if share is not None:
                sums.append(share.mixing.sum(1).flatten())
                share.counting = False
            for name, draws in changes.items():
                for change, right in zip(draws, outcomes[name], strict=True):
                    with change():
                        right.append(head(f).argmax(1) == truth)
            if share is not None:
                share.counting = True
            done += len(batch)
            progress.update("knock-outs", done, len(labels))
    correct = torch.cat(intact).cpu()
    found: dict[str, Any] = {"accuracy": correct.double().mean().item()}
    if share is not None:
        mixing = torch.cat(sums).cpu().double()
        quartiles = torch.quantile(mixing[torch.randperm(len(mixing), generator=generator)[:QUANTILE_POINTS]], QUARTERS)
        found["share"] = share.value()
        found["unmatched"] = (mixing <= 0).double().mean().item()
        found["mixing_sum"] = tuple(quartiles.tolist())
        found["knock_outs"] = {
            name: compare(correct, [torch.cat(right).cpu() for right in draws]) for name, draws in outcomes.items()
        }
    return found


def _cut(model: nn.Module, block: Block) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The network up to the block, and from the block to the logits, so that knock-outs share the first part.

    A network of unknown structure is not cut: its first part does nothing.
    """
    if _is_cut(model, block):
        assert isinstance(model, Network)
        return model.features, lambda f: model.classify(block(f)[0])
    return lambda images: images, lambda images: logits_of(model(images))


def _is_cut(model: nn.Module, block: Block) -> bool:
    return isinstance(model, Network) and model.block is block and type(model).forward is Network.forward


def _batches(order: Tensor) -> list[Tensor]:
    """Batches of at least two images."""
    batches = list(order.split(BATCH))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


# --- from images to a cost


def compare(intact: Tensor, draws: list[Tensor]) -> KnockOut:
    """From whether each image was classified correctly, intact and in each draw."""
    wrong = [intact.double() - right.double() for right in draws]
    cost = torch.stack(wrong).mean(0)
    noise = cost.std().item() / math.sqrt(len(cost))
    mean = cost.mean().item()
    if len(draws) == 1:
        p = mcnemar(int((cost > 0).sum()), int((cost < 0).sum()))
    else:
        p = math.erfc(abs(mean) / noise / math.sqrt(2)) if noise > 0 else float(mean == 0)
    return KnockOut(torch.stack(draws).double().mean().item(), mean, noise, p, len(draws))


def mcnemar(lost: int, gained: int) -> float:
    """The exact two-sided p-value for ``lost`` and ``gained`` images: Binomial(lost + gained, 1/2)."""
    return float(needs("scipy.stats").binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0


def p_text(p: float) -> str:
    """``p = 0.03`` or ``p < 0.0001``."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


# --- parts that are replaced


def replacements(block: FeatureEmbedding, generator: torch.Generator) -> dict[str, list[Change]]:
    """The knock-outs by name: a list of context managers for each, one for every draw."""
    found: dict[str, list[Change]] = {
        NO_EMBEDDING: [partial(changed_mixing, block, torch.zeros_like)],
        OTHERS: [partial(changed_mixing, block, partial(_of_another_image, draw=draw)) for draw in range(DRAWS)],
        NO_SHORTCUT: [partial(_without_shortcut, block)],
    }
    classes = block.values.in_channels
    if classes > 1:
        orders = [derangement(classes, generator) for _ in range(DRAWS)]
        found[PERMUTED] = [partial(changed_mixing, block, partial(_permuted, order=order)) for order in orders]
    return {name: found[name] for name in (NO_EMBEDDING, OTHERS, PERMUTED, NO_SHORTCUT) if name in found}


def derangement(count: int, generator: torch.Generator) -> Tensor:
    """A random permutation that moves every one of ``count`` elements."""
    while True:
        order = torch.randperm(count, generator=generator)
        if not (order == torch.arange(count)).any():
            return order


def _of_another_image(mixing: Tensor, draw: int) -> Tensor:
    """Every image gets the mixing weights of another one of its batch, which is in random order."""
    return mixing.roll(1 + draw % (len(mixing) - 1), 0)


def _permuted(mixing: Tensor, order: Tensor) -> Tensor:
    """The mixing weights of class ``order[k]`` for class ``k``, which is the same as permuted class vectors."""
    return mixing[:, order]


@contextmanager
def _without_shortcut(block: FeatureEmbedding) -> Iterator[None]:
    """Within the ``with``, the block writes f' alone, or next to zeros if it concatenates."""
    latest: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        latest[:] = [output]

    def replace(module: nn.Module, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        features, scores = output
        alone = torch.zeros_like(features)
        alone[:, features.shape[1] - latest[0].shape[1] :] = latest[0]
        return alone, scores

    with ExitStack() as stack:
        stack.callback(block.values.register_forward_hook(keep).remove)
        stack.callback(block.register_forward_hook(replace).remove)
        yield
