"""Measures about removed parts have their known values for a perfect map, an inverted one and a constant one."""

from dataclasses import replace

import numpy as np
import pytest

from tembed.lab.analysis.judge_parts import (
    FEWEST_PIXELS,
    THRESHOLDS,
    Answers,
    Scenes,
    completeness,
    contrastivity,
    contrasts,
    correctness,
    spearman,
    sufficient_sets,
)
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.leaving_out import ownership
from tembed.lab.data.parts import CLASSES, PARTS, draw

PART = {name: number for number, name in enumerate(PARTS)}
WEIGHTS = np.array([1.5**number % 7 + 0.5 for number in range(len(PARTS))])
"""How much each part adds to the logit of every class that has it, in the planted network."""


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    """Five images of each class, and all subsets of their parts."""
    return Scenes.draw(draw(np.arange(50)), dataset("parts"))


def answered(scenes: Scenes, weights: np.ndarray) -> Answers:
    """A network whose logits are sums over the parts that it sees: ``weights (C, parts)``."""
    logits = []
    for parts in scenes.visible:
        bits = np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1
        logits.append((1 - bits) @ weights[:, parts].T)
    return Answers(scenes, np.concatenate(logits).astype(np.float32))


def painted(scenes: Scenes, importance: np.ndarray, *, per_pixel: bool = False) -> np.ndarray:
    """Maps whose sum (or mean) over each part is its importance for the image's class: ``importance (N, parts)``."""
    maps = np.zeros(scenes.part_map.shape, np.float32)
    for image, parts in enumerate(scenes.visible):
        for part in parts:
            mask = scenes.part_map[image] == part + 1
            maps[image][mask] = importance[image, part] / (1 if per_pixel else mask.sum())
    return maps


@pytest.fixture(scope="module")
def weights(scenes: Scenes) -> np.ndarray:
    return np.where(scenes.has, WEIGHTS, -WEIGHTS)


def test_every_subset_of_the_visible_parts_is_drawn(scenes: Scenes) -> None:
    image = 17  # a dog or cat with several parts
    parts = scenes.visible[image]
    first = scenes.start[image]
    np.testing.assert_array_equal(scenes.subsets[first], scenes.images.pixels([image])[0])
    bits = 0b101
    lacking = tuple(PARTS[parts[k]] for k in (0, 2))
    np.testing.assert_array_equal(scenes.subsets[first + bits], draw([image], without=lacking).pixels()[0])
    areas = [(scenes.part_map[image] == part + 1).sum() for part in range(len(PARTS))]
    assert parts == [part for part, area in enumerate(areas) if area >= FEWEST_PIXELS]
    assert len(scenes.subsets) == sum(2 ** len(one) for one in scenes.visible)


def test_correctness_is_1_for_the_right_map_and_0_for_the_inverted_one(scenes: Scenes, weights: np.ndarray) -> None:
    answers, own = answered(scenes, weights), weights[scenes.labels]
    right, by_pixel = painted(scenes, own), painted(scenes, own, per_pixel=True)
    np.testing.assert_allclose(correctness(right, answers), 1)
    np.testing.assert_allclose(correctness(-right, answers), 0, atol=1e-9)
    np.testing.assert_allclose(correctness(by_pixel, answers, per_pixel=True), 1)
    assert correctness(by_pixel, answers).mean() < 0.97, "by sums, areas disturb it"
    assert (correctness(np.ones_like(right), answers, per_pixel=True) == 0.5).all(), "a constant map is chance"
    few = replace(scenes, visible=[scenes.visible[0][:2], *scenes.visible[1:]])
    dropped = np.isnan(correctness(right, Answers(few, answers.logits)))
    assert np.flatnonzero(dropped).tolist() == [0], "two parts say nothing about ranks"
    idle = answered(scenes, np.zeros_like(weights))
    assert np.isnan(correctness(right, idle)).all(), "without drops there is nothing to be correct about"


def test_spearman_states_what_constant_lists_give() -> None:
    assert spearman(np.array([1.0, 2, 9]), np.array([0.1, 0.2, 0.3])) == pytest.approx(1)
    assert spearman(np.array([1.0, 1, 1]), np.array([0.1, 0.2, 0.3])) == 0
    assert np.isnan(spearman(np.array([1.0, 2, 9]), np.array([4.0, 4, 4])))


def test_sufficient_sets_are_those_that_no_other_class_has() -> None:
    has = ownership(dataset("parts"))

    def sets(name: str) -> set[frozenset[str]]:
        label = CLASSES.index(name)
        found = sufficient_sets(has, label, np.flatnonzero(has[label]).tolist())
        return {frozenset(PARTS[part] for part in one) for one in found}

    assert sets("fish") == {frozenset({"scales"}), frozenset({"fin", "eye"})}
    assert sets("car") == {frozenset({"roof"})}
    assert sets("train") == {frozenset({"cowcatcher"}), frozenset({"wheel", "chimney"})}
    assert sets("cat") == set(), "a horse has all parts of a cat"
    assert sufficient_sets(has, CLASSES.index("fish"), [PART["fin"]]) == [], "only visible parts count"


def test_completeness_of_a_map_that_names_the_one_part_that_matters(scenes: Scenes) -> None:
    """The planted network knows each class by a part of its own; all others have no influence."""
    known_by = {"car": "roof", "fish": "scales", "ship": "hull"}
    weights = np.zeros(scenes.has.shape)
    for name, part in known_by.items():
        weights[CLASSES.index(name), PART[part]] = 5
    answers = answered(scenes, weights)
    answers.logits[:, CLASSES.index("plane")] += 1  # what the network says when it sees none of these parts
    mine = [
        image
        for image, label in enumerate(scenes.labels)
        if CLASSES[label] in known_by and PART[known_by[CLASSES[label]]] in scenes.visible[image]
    ]
    assert len(mine) >= 10
    right = completeness(painted(scenes, weights[scenes.labels]), answers)
    for one in (right.csdc, right.pc, right.dc, right.d):
        np.testing.assert_array_equal(one[mine], 1)
    assert right.total[mine, right.best].mean() == 1
    other = [image for image, label in enumerate(scenes.labels) if CLASSES[label] == "truck"]
    assert np.isnan(right.pc[other]).all(), "images that are classified wrongly are dropped"
    wrong = completeness(painted(scenes, 1.0 - (weights[scenes.labels] > 0)), answers)
    for one in (wrong.pc, wrong.dc, wrong.d):
        np.testing.assert_array_equal(one[mine, 0], 0)
    negative = completeness(-painted(scenes, weights[scenes.labels]), answers)
    assert (negative.d[mine] == 1).all(), "a negative sum does not turn the threshold around"
    assert right.csdc.shape == (len(scenes.labels), len(THRESHOLDS))


def test_contrastivity_is_1_for_right_maps_and_0_for_exchanged_ones(scenes: Scenes, weights: np.ndarray) -> None:
    answers = answered(scenes, np.where(scenes.has, WEIGHTS, 0))
    pairs = contrasts(answers)
    assert len(pairs) > 15
    assert all(pair.behaves for pair in pairs)
    for pair in pairs:
        label = scenes.labels[pair.image]
        assert label not in (pair.first, pair.second)
        assert (scenes.has[pair.first] & scenes.has[label])[pair.first_parts].all()
        assert not scenes.has[pair.second][pair.first_parts].any()
    own = [painted(scenes, has[None].repeat(50, 0).astype(float)) for has in scenes.has]  # of each class
    first, second = (np.stack([own[getattr(p, which)][p.image] for p in pairs]) for which in ("first", "second"))
    assert (contrastivity(first, second, pairs, scenes) == 1).all()
    assert (contrastivity(second, first, pairs, scenes) == 0).all()
    assert (contrastivity(first, first, pairs, scenes) == 0.5).all(), "ties count half"
    opposite = contrasts(answered(scenes, np.where(scenes.has, -WEIGHTS, 0)))
    assert not any(pair.behaves for pair in opposite)
