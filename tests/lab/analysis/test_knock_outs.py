"""Knock-outs on planted networks, where the truth is known, and on small networks against plain loops."""

import copy
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

import tembed
from tembed.block import FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.lab.analysis import knock_outs as module
from tembed.lab.analysis.knock_outs import (
    NO_EMBEDDING,
    NO_SHORTCUT,
    OTHERS,
    PERMUTED,
    KnockOuts,
    compare,
    derangement,
    mcnemar,
    measure_knock_outs,
    trained_knock_outs,
    without_embedding,
)
from tembed.lab.data.image_set import ImageSet
from tembed.models import densenet
from tembed.models.network import Output
from tembed.models.registry import create_model

CLASSES = 4


class Planted(nn.Module):
    """Images whose mean over the pixels is one-hot in the class. The logits are the mean of what the block writes.

    ``uses``: whether the class reaches the head through f' or through the shortcut.
    """

    def __init__(self, uses: str, returns: str = "tensor"):
        super().__init__()
        self.returns = returns
        self.inside = nn.Sequential(nn.Identity(), FeatureEmbedding(CLASSES, CLASSES))
        block = self.block
        for weight in (block.match.score.weight, block.values.weight, block.shortcut.weight):
            nn.init.zeros_(weight)
        nn.init.eye_(block.match.score.weight.data[:, :, 0, 0])
        nn.init.eye_((block.values if uses == "embedding" else block.shortcut).weight.data[:, :, 0, 0])

    @property
    def block(self) -> Any:
        return self.inside[1]

    def forward(self, images: Tensor) -> Any:
        features, scores = self.inside(images)
        logits = features.mean((2, 3))
        return {"tensor": logits, "tuple": (logits, scores), "output": Output(logits, scores)}[self.returns]


def planted_images(count: int = 90) -> tuple[Tensor, Tensor]:
    """Sorted by class; class 0, which wins if all logits are 0, is absent."""
    labels = torch.arange(count) * (CLASSES - 1) // count + 1
    images = F.one_hot(labels, CLASSES).float()[:, :, None, None].expand(-1, -1, 2, 2)
    return images.contiguous(), labels


@pytest.mark.parametrize("returns", ["tensor", "tuple", "output"])
def test_removing_an_embedding_that_carries_everything_costs_everything(returns: str) -> None:
    found = measure_knock_outs(Planted("embedding", returns), *planted_images())
    assert (found.images, found.accuracy, found.share) == (90, 1.0, 1.0)
    out = found.knock_outs[NO_EMBEDDING]
    assert (out.accuracy, out.cost, out.noise) == (0.0, 1.0, 0.0)
    assert out.p == pytest.approx(2**-89)
    assert found.knock_outs[PERMUTED].accuracy == 0.0
    assert found.knock_outs[NO_SHORTCUT].accuracy == 1.0
    assert 0.15 < found.knock_outs[OTHERS].accuracy < 0.5  # another image has the same class one time in three
    assert "Removing f' costs more than sampling noise" in found.words()


def test_removing_an_embedding_that_carries_nothing_costs_nothing() -> None:
    found = measure_knock_outs(Planted("shortcut"), *planted_images())
    assert (found.accuracy, found.share) == (1.0, 0.0)
    for name in (NO_EMBEDDING, OTHERS, PERMUTED):
        assert (found.knock_outs[name].cost, found.knock_outs[name].p, found.knock_outs[name].costs) == (
            0.0,
            1.0,
            False,
        )
    assert found.knock_outs[NO_SHORTCUT].accuracy == 0.0
    assert "Removing f' costs less than sampling noise (p = 1): on these images the head does not need it" in (
        found.words()
    )


def test_an_embedding_that_misleads_the_head_is_named() -> None:
    model = Planted("shortcut")
    with torch.no_grad():
        model.block.values.weight.copy_(-2 * torch.eye(CLASSES)[:, :, None, None])
    found = measure_knock_outs(model, *planted_images())
    assert found.accuracy == 0.0
    assert found.knock_outs[NO_EMBEDDING].accuracy == 1.0
    assert "Removing f' improves the head" in found.words()
    assert found.at_work().startswith("the block is at work, but does harm: without f' the head loses -100.00 points")


@pytest.mark.parametrize(
    ("lost", "gained", "images", "line"),
    [
        (40, 10, 4000, "the block is at work: without f' the head loses 0.75 points [0.40, 1.10] on 4,000 images"),
        (10, 8, 4000, "the block is idle: without f' the head loses 0.05 points [-0.16, 0.26] on 4,000 images; try "),
        (10, 4, 400, "whether the block is at work is undecided: without f' the head loses 1.50 points [-0.33, 3.33]"),
        (0, 0, 4000, "the block is idle: without f' the head loses 0.00 points [-0.07, 0.07] on 4,000 images; try "),
        (0, 0, 100, "whether the block is at work is undecided: without f' the head loses 0.00 points [-3.00, 3.00]"),
    ],
)
def test_the_block_is_at_work_idle_or_undecided(lost: int, gained: int, images: int, line: str) -> None:
    intact = torch.zeros(images, dtype=torch.bool)
    without = intact.clone()
    intact[:lost], without[lost : lost + gained] = True, True
    found = KnockOuts(images, 0.5, knock_outs={NO_EMBEDDING: compare(intact, [without])})
    assert found.at_work().startswith(line)


def test_the_cost_of_no_embedding_alone_is_that_of_all_knock_outs() -> None:
    network, generator = tembed.load("rn26-embed/cifar10"), np.random.default_rng(0)
    pixels = generator.integers(0, 256, (40, 32, 32, 3), np.uint8)
    labels = torch.from_numpy(generator.integers(0, 10, 40))
    images = ImageSet(pixels, labels, network.description.classes, indices=torch.arange(40))
    alone, every = without_embedding(network, images), trained_knock_outs(network, images)
    assert alone is not None
    assert list(alone.knock_outs) == [NO_EMBEDDING]
    assert alone.knock_outs[NO_EMBEDDING] == every.knock_outs[NO_EMBEDDING]
    assert (alone.accuracy, alone.share) == (every.accuracy, every.share)
    few = without_embedding(network, images, most=7)
    assert few is not None
    assert few.images == 7
    assert without_embedding(tembed.load("rn26/cifar10"), images) is None


@pytest.fixture(scope="module")
def pictures() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(23) * 3 // 23
    return torch.randn(23, 3, 16, 16, generator=generator) + labels[:, None, None, None], labels


def warmed(name: str, images: Tensor, **options: Any) -> nn.Module:
    """A network with statistics from these images and class vectors that matter."""
    torch.manual_seed(3)
    model = create_model(name, 3, 16, **options).train()
    with torch.no_grad():
        for _ in range(20):
            model(images)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rn26-embed", "dn100-embed-cat"])
def test_knock_outs_are_those_of_a_loop_over_the_images(
    name: str, pictures: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image by itself, with the formulas of the block written out; batches of 11, 11 + 1."""
    monkeypatch.setattr(module, "BATCH", 11)
    monkeypatch.setattr(densenet, "LAYERS", 3)  # saves time
    images, labels = pictures
    model: Any = warmed(name, images)
    block, seed = model.block, 7
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=generator)
    orders = [derangement(3, generator) for _ in range(3)]
    batches = [order[:11], order[11:]]
    expected: dict[str, list[float]] = {NO_EMBEDDING: [0], OTHERS: [0] * 3, PERMUTED: [0] * 3, NO_SHORTCUT: [0]}
    intact, unmatched, sums = 0, 0, []
    with torch.no_grad():
        maps = model.features(images)
        mixing = torch.cat([block.steps(f[None]).mixing for f in maps])
        own = block.values(mixing).var((0, 2, 3), correction=0).sum()
        rest = (maps if block.shortcut is None else block.shortcut(maps)).var((0, 2, 3), correction=0).sum()

        def right(n: int, p: Tensor, shortcut: bool = True) -> int:
            embedding = block.values(p[None])
            f = maps[n][None]
            rest = f if block.shortcut is None else block.shortcut(f)
            rest = rest if shortcut else torch.zeros_like(rest)
            features = torch.cat([rest, embedding], 1) if block.shortcut is None else rest + embedding
            return int(model.classify(features).argmax() == labels[n])

        for batch in batches:
            for position, n in enumerate(batch.tolist()):
                intact += right(n, mixing[n])
                unmatched += int((mixing[n].sum(0) == 0).sum())
                sums += mixing[n].sum(0).flatten().tolist()
                expected[NO_EMBEDDING][0] += right(n, 0 * mixing[n])
                expected[NO_SHORTCUT][0] += right(n, mixing[n], shortcut=False)
                for draw in range(3):
                    other = int(batch[(position - draw - 1) % len(batch)])
                    assert other != n
                    expected[OTHERS][draw] += right(n, mixing[other])
                    expected[PERMUTED][draw] += right(n, mixing[n][orders[draw]])
    found = measure_knock_outs(model, images, labels, seed=seed)
    assert found.accuracy == pytest.approx(intact / 23)
    for knock_out, counts in expected.items():
        assert found.knock_outs[knock_out].accuracy == pytest.approx(sum(counts) / len(counts) / 23), knock_out
        assert found.knock_outs[knock_out].draws == len(counts)
    assert found.share == pytest.approx((own / (own + rest)).item(), rel=1e-4)  # that of the intact block only
    assert found.unmatched == pytest.approx(unmatched / len(sums))
    assert found.mixing_sum == pytest.approx(tuple(stats.quantile(sums, [0.25, 0.5, 0.75])), rel=1e-4)
    assert json.loads(json.dumps(found.to_json()))["knock_outs"][NO_SHORTCUT]["draws"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rn26-embed", "rn26-aux"])
def test_gradients_are_those_of_the_two_losses_in_front_of_the_block(
    name: str, pictures: tuple[Tensor, Tensor]
) -> None:
    images, labels = pictures
    model: Any = warmed(name, images)
    found = measure_knock_outs(model, images, labels)
    plain = copy.deepcopy(model)
    output = plain(images)
    head = torch.stack([-output.logits[n].log_softmax(0)[y] for n, y in enumerate(labels)]).mean()
    patches = torch.stack([-output.scores[n].log_softmax(0)[y].mean() for n, y in enumerate(labels)]).mean()
    trunk = [p for part in (plain.stem, plain.stage1, plain.stage2, plain.stage3) for p in part.parameters()]
    one, two = (
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, trunk, retain_graph=True)])
        for loss in (head, patches)
    )
    assert found.gradient_norms == pytest.approx((one.norm().item(), two.norm().item()), rel=1e-4)
    assert found.gradient_cosine == pytest.approx(F.cosine_similarity(one, two, 0).item(), abs=1e-4)
    assert all(p.grad is None for p in model.parameters())


def test_deep_supervision_has_no_embedding_to_remove(pictures: tuple[Tensor, Tensor]) -> None:
    found = measure_knock_outs(warmed("rn26-aux", pictures[0]), *pictures)
    assert found.share is found.unmatched is found.mixing_sum is None
    assert found.knock_outs == {}
    assert "not fed back" in found.words()


def test_the_model_is_unchanged_afterwards_and_keeps_no_hooks(pictures: tuple[Tensor, Tensor]) -> None:
    model = warmed("rn26-embed", pictures[0]).train()
    model.stage1.eval()  # type: ignore[union-attr,operator]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    measure_knock_outs(model, *pictures)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    with pytest.raises(TembedError, match="three channels"):
        measure_knock_outs(model, torch.zeros(4, 5, 16, 16), torch.zeros(4, dtype=torch.int64))
    assert [module.training for module in model.modules()] == modes
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_a_frozen_trunk_has_no_gradients(pictures: tuple[Tensor, Tensor]) -> None:
    model = warmed("rn26-embed", pictures[0]).requires_grad_(False)
    model.head.requires_grad_(True)  # type: ignore[union-attr,operator]
    found = measure_knock_outs(model, *pictures)
    assert found.gradient_norms is found.gradient_cosine is None
    assert found.share is not None


def test_errors_name_the_way_out() -> None:
    images, labels = planted_images()
    model = Planted("embedding")
    with pytest.raises(TembedError, match="no block"):
        measure_knock_outs(create_model("rn26"), images, labels)
    with pytest.raises(TembedError, match="has 2 blocks"):
        measure_knock_outs(nn.Sequential(model, Planted("shortcut")), images, labels)
    with pytest.raises(TembedError, match="1 images and 1 labels"):
        measure_knock_outs(model, images[:1], labels[:1])
    with pytest.raises(TembedError, match="90 images and 3 labels"):
        measure_knock_outs(model, images, labels[:3])
    with pytest.raises(TembedError, match=r"`images` are torch.uint8"):
        measure_knock_outs(model, images.byte(), labels)


def test_mcnemars_test_counts_the_tosses_of_a_coin() -> None:
    for lost, gained in ((0, 0), (1, 0), (5, 5), (3, 14), (14, 3), (700, 640), (4000, 0)):
        total = lost + gained
        tail = sum(math.comb(total, k) for k in range(min(lost, gained) + 1))
        exact = min(1.0, float(Fraction(2 * tail, 2**total)))
        assert mcnemar(lost, gained) == pytest.approx(exact, rel=1e-9)


def test_several_draws_are_tested_by_the_paired_mean_over_them() -> None:
    generator = torch.Generator().manual_seed(1)
    intact = torch.rand(300, generator=generator) < 0.9
    draws = [intact & (torch.rand(300, generator=generator) < 0.97) for _ in range(3)]
    found = compare(intact, draws)
    apart = torch.stack([intact.double() - right.double() for right in draws]).mean(0).numpy()
    assert found.cost == pytest.approx(apart.mean())
    assert found.noise == pytest.approx(stats.sem(apart))
    assert found.p == pytest.approx(2 * stats.norm.sf(apart.mean() / stats.sem(apart)))
    assert found.draws == 3
    alone = compare(intact, draws[:1])
    lost = int((intact & ~draws[0]).sum())
    assert alone.p == pytest.approx(stats.binomtest(lost, lost).pvalue)


def test_a_derangement_moves_everything() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = {tuple(derangement(4, generator).tolist()) for _ in range(300)}
    assert len(drawn) == 9  # all derangements of four elements
    assert all(k != image for order in drawn for k, image in enumerate(order))


def test_an_attached_block_has_knock_outs(pictures: tuple[Tensor, Tensor]) -> None:
    """Removing f' is the same as class vectors of zero, and removing the shortcut the same as its weights of zero."""
    images, labels = pictures
    torch.manual_seed(1)
    model: Any = tembed.attach(host(images), at="1", num_classes=3, example=images[:2], start="paper").eval()
    found = measure_knock_outs(model, images, labels)

    def accuracy() -> float:
        with torch.no_grad():
            return (model(images).logits.argmax(1) == labels).double().mean().item()

    assert found.accuracy == pytest.approx(accuracy())
    block = module.find_block(model)
    for name, part in ((NO_EMBEDDING, block.values), (NO_SHORTCUT, block.shortcut)):
        kept = part.weight.detach().clone()
        with torch.no_grad():
            part.weight.zero_()
            assert found.knock_outs[name].accuracy == pytest.approx(accuracy())
            part.weight.copy_(kept)
    assert found.share is not None
    assert 0 < found.share < 1
    assert found.gradient_norms is not None
    bystander = tembed.attach(host(images), at="1", num_classes=3, example=images[:2])
    idle = measure_knock_outs(bystander, images, labels)
    assert (idle.share, idle.knock_outs[NO_EMBEDDING].cost) == (0.0, 0.0)


def host(images: Tensor) -> nn.Module:
    """Somebody's network, which flattens its last map."""
    side = (images.shape[-1] - 3) // 2 + 1
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6 * side * side, 3))
