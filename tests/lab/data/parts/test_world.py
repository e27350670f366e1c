"""The parts world follows its design, is the same on every machine, and is not easy for a simple classifier."""

import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.datasets import planes
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.parts.world import CLASSES, PARTS, PARTS_OF, SUPER_CLASSES, generate


@pytest.fixture(scope="module")
def world() -> ImageSet:
    return generate(3000, seed=11)


def count_parts(part_map: Tensor) -> Tensor:
    """Pixels of each part in each map: ``(N, parts)``."""
    numbers = part_map.flatten(1).long() + torch.arange(len(part_map))[:, None] * (len(PARTS) + 1)
    return torch.bincount(numbers.flatten(), minlength=len(part_map) * (len(PARTS) + 1)).view(len(part_map), -1)[:, 1:]


def linear_accuracy(features: Tensor, labels: Tensor) -> float:
    """Test accuracy of a logistic regression, the better of two weight decays; the last third is the test."""
    features = (features - features.mean(0)) / features.std()
    cut = 2 * len(labels) // 3
    best = 0.0
    for decay in (1e-3, 1e-2):
        weight = torch.zeros(len(CLASSES), features.shape[1] + 1, requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], max_iter=25, line_search_fn="strong_wolfe")

        def loss(weight=weight, optimizer=optimizer, decay=decay) -> Tensor:
            optimizer.zero_grad()
            scores = F.linear(features[:cut], weight[:, 1:], weight[:, 0])
            value = F.cross_entropy(scores, labels[:cut]) + decay * weight.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        guess = F.linear(features[cut:], weight[:, 1:], weight[:, 0]).argmax(1)
        best = max(best, (guess == labels[cut:]).float().mean().item())
    return best


def test_ten_classes_in_two_super_classes():
    assert len(CLASSES) == 10
    assert len(SUPER_CLASSES) == 2
    assert sorted(name for names in SUPER_CLASSES.values() for name in names) == sorted(CLASSES)


def test_at_least_twelve_parts_each_in_one_to_five_classes():
    owners = {part: [name for name in CLASSES if part in PARTS_OF[name]] for part in PARTS}
    assert len(PARTS) >= 12
    assert all(1 <= len(names) <= 5 for names in owners.values())
    assert owners["wing"] == ["plane", "bird"]
    assert owners["wheel"] == ["car", "truck", "train"]
    assert set(owners["fur"]) <= set(SUPER_CLASSES["animals"])


def test_no_two_classes_have_the_same_parts():
    assert len({frozenset(parts) for parts in PARTS_OF.values()}) == len(CLASSES)


def test_an_image_set_with_its_part_maps(world):
    assert world.pixels().shape == (3000, 32, 32, 3)
    assert world.pixels().dtype == np.uint8
    assert world.part_map is not None
    assert world.part_map.shape == (3000, 32, 32)
    assert world.part_map.dtype == torch.uint8
    assert world.parts == PARTS
    assert world.classes == CLASSES
    assert torch.equal(world.indices, torch.arange(3000))


def test_classes_are_balanced(world):
    assert torch.bincount(world.labels).tolist() == [300] * 10


def test_the_same_bytes_on_every_machine():
    world = generate(50, seed=7)
    assert world.part_map is not None
    digest = hashlib.sha256(world.pixels().tobytes())
    digest.update(world.part_map.numpy().tobytes())
    assert digest.hexdigest() == "7ea5f5861e84fef5b806be6ac8e06300b19b645f9f5080959f83db010275846e"


def test_an_image_depends_only_on_seed_and_position(world):
    short = generate(137, seed=11)
    assert np.array_equal(short.pixels(), world.pixels(slice(137)))
    assert torch.equal(short.part_map, world.part_map[:137])
    assert torch.equal(short.labels, world.labels[:137])


def test_seeds_differ_and_images_do_not_repeat(world):
    other = generate(1000, seed=12)
    assert not (planes(other) == planes(world)[:1000]).flatten(1).all(1).any()
    assert len(torch.unique(planes(world).flatten(1), dim=0)) == len(world)


def test_an_image_shows_the_parts_of_its_class_and_no_others(world):
    allowed = torch.tensor([[part in PARTS_OF[name] for part in PARTS] for name in CLASSES])
    assert not count_parts(world.part_map)[~allowed[world.labels]].any()


def test_nearly_every_image_shows_each_part_of_its_class(world):
    area = count_parts(world.part_map)
    for label, name in enumerate(CLASSES):
        for part in PARTS_OF[name]:
            visible = area[world.labels == label, PARTS.index(part)]
            assert (visible > 0).float().mean() > 0.9, (name, part)
            assert visible.float().mean() >= 4, (name, part)


def test_objects_are_large_but_leave_a_background(world):
    shown = (world.part_map > 0).float().mean((1, 2))
    assert 0.2 < shown.mean() < 0.4
    assert shown.min() > 0.05
    assert shown.max() < 0.7


def test_a_quarter_of_the_image_mostly_shows_one_or_two_parts(world):
    """The analysis looks at 16 x 16 patches: 4 x 4 windows of 8 x 8 maps."""
    counts = count_parts(world.part_map[:, 8:24, 8:24])
    top_two = counts.topk(2, dim=1).values.sum(1) / counts.sum(1).clamp(min=1)
    assert top_two.median() > 0.7
    assert (count_parts(world.part_map) > 0).sum(1).float().mean() > 3


def test_objects_stand_out_from_the_background(world):
    grey = planes(world).float().mean(1)
    shown = world.part_map > 0
    inside = (grey * shown).sum((1, 2)) / shown.sum((1, 2))
    outside = (grey * ~shown).sum((1, 2)) / (~shown).sum((1, 2))
    assert (inside - outside).abs().median() > 40
    assert 0.4 < (inside > outside).float().mean() < 0.6


def test_another_size_shows_the_same_scene():
    small, large = generate(60, seed=3), generate(60, seed=3, size=64)
    assert large.pixels().shape == (60, 64, 64, 3)
    assert large.part_map is not None
    assert small.part_map is not None
    shrunk = F.avg_pool2d(planes(large).float(), 2)
    assert (shrunk - planes(small).float()).abs().mean() < 12
    assert (large.part_map[:, ::2, ::2] == small.part_map).float().mean() > 0.93


@pytest.mark.slow
def test_a_linear_classifier_on_pixels_stays_below_one_half(world):
    assert linear_accuracy(planes(world).float().flatten(1), world.labels) < 0.5


def test_colours_do_not_reveal_the_class(world):
    pixels = planes(world).float().flatten(2)
    features = pixels.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=2).movedim(0, 1).flatten(1)
    assert linear_accuracy(features, world.labels) < 0.3


@pytest.mark.parametrize(("count", "size"), [(0, 32), (-1, 32), (10, 4)])
def test_an_empty_set_or_a_tiny_image_is_refused(count, size):
    with pytest.raises(TembedError, match=f"`count` is {count}" if count < 1 else f"`size` is {size}"):
        generate(count, size=size)
