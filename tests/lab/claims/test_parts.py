"""Which parts the patches of the generated world show, and the claims that rest on them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from support.claims import PARTS, made_claims
from support.datasets import store_world
from support.features import made_features

from tembed.lab.analysis.compared_runs import ByKind
from tembed.lab.analysis.features import Features, patch_span
from tembed.lab.analysis.words import Words
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.recognised_parts import classes_with_part, leading_part, part_pixels
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.lab.data.parts.world import PARTS_OF


def test_the_classes_that_have_a_part_are_those_of_the_design(tmp_path: Path) -> None:
    store_world(tmp_path, "world", 400, 32)
    images = load("world", root=tmp_path).train
    sharing = classes_with_part(images)
    assert not sharing[0].any()
    for number, part in enumerate(images.parts, 1):
        having = {name for name, has in zip(images.classes, sharing[number], strict=True) if has}
        assert having == {name for name, parts in PARTS_OF.items() if part in parts}, part


def test_a_patch_counts_the_pixels_of_its_region() -> None:
    part_map = torch.randint(0, 4, (2, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    counts = part_pixels(part_map, 3, (4, 4), (2, 2))
    for image in range(2):
        for row in range(4):
            for column in range(4):
                (top, bottom), (left, right) = (patch_span(index, 2, 4.0) for index in (row, column))
                region = part_map[image, max(0, top) : bottom, max(0, left) : right]
                assert counts[image, row, column].tolist() == [int((region == part).sum()) for part in range(4)]
    few = torch.tensor([[[[90, 7, 3, 0]]], [[[0, 8, 12, 0]]]])
    assert leading_part(few).tolist() == [0, 2]


def world(classes: int = 4) -> tuple[ImageSet, np.ndarray]:
    """One part per image: 1 is shared by classes 0 and 1, 2 by classes 2 and 3, 3 by all."""
    labels = np.repeat(np.arange(classes), 30)
    part = np.where(np.arange(len(labels)) % 3 == 2, 3, 1 + (labels >= 2))
    part_map = np.tile(part.astype(np.uint8)[:, None, None], (1, 8, 8))
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    names = tuple("abcd")
    return ImageSet(images, torch.from_numpy(labels), names, torch.arange(len(labels)), part_map, ("x", "y", "z")), part


def part_claims(networks: ByKind[Features], images: ImageSet, words: Words, samples: HalfSamples) -> list[Claim]:
    return made_claims(PARTS, networks, samples, sample=images, test_images=images, words=words)


def test_mass_on_the_sharing_classes_is_found_where_it_was_put() -> None:
    images, part = world()
    labels = images.labels.numpy()
    features = made_features(labels, (1, 1))
    sharing = np.where((part == 3)[:, None], True, (np.arange(4) >= 2) == (part == 2)[:, None])
    fair = (sharing / sharing.sum(1, keepdims=True)).astype(np.float32)
    blind = np.full((len(labels), 4), 0.25, np.float32)
    none = np.zeros(4, np.int64)
    words = Words(np.eye(4, dtype=np.float32), none, part, np.bincount(labels), none, none[:, None])
    seeing, other = dataclasses.replace(features, softmax=fair), dataclasses.replace(features, softmax=blind)
    samples = HalfSamples.draw(labels, 4, resamples=20)
    blank = dataclasses.replace(other, softmax=noise(len(labels)))
    networks = {"run": [seeing], "-aux": [other], "untrained": [blank]}
    first, off, recovered = corrected(part_claims(networks, images, words, samples))
    assert first.weights.verdict == off.weights.verdict == recovered.weights.verdict == "holds"
    assert values(first) == pytest.approx({"measured": 1, "chance": 0.5, "-aux": 0.5})
    assert values(off) == pytest.approx({"measured": 1, "chance": 1 / 3, "-aux": 1 / 3})
    assert values(recovered)["measured"] == pytest.approx(1)
    alone = corrected(part_claims({"run": [other]}, images, words, samples))
    assert alone[0].weights.verdict == "unclear"
    wrong = dataclasses.replace(features, softmax=((1 - sharing) + 0.01).astype(np.float32) / 2.04)
    (claim, *_) = corrected(part_claims({"run": [wrong]}, images, words, samples))
    assert claim.weights.verdict == "does not hold"


def noise(count: int) -> np.ndarray:
    p = np.random.default_rng(0).random((count, 4))
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def values(claim: Claim) -> dict[str, float]:
    assert claim.value is not None
    found = {"measured": claim.value.value} | {control.name: control.value.value for control in claim.controls}
    found |= {control.name: control.value.value for control in claim.shown}
    return {name: value for name, value in found.items() if name in ("measured", "chance", "-aux")}


def test_without_a_part_map_the_claims_are_not_measured() -> None:
    images, part = world()
    plain = dataclasses.replace(images, pool_part_map=None, parts=())
    features = made_features(images.labels.numpy(), (1, 1))
    words = Words(np.eye(4, dtype=np.float32), part, part, part, part, part[:, None])
    samples = HalfSamples.draw(features.labels, 4, resamples=4)
    claims = part_claims({"run": [features]}, plain, words, samples)
    assert {claim.weights.verdict for claim in claims} == {"not measured"}
    assert {claim.weights.why for claim in claims} == {"the parts of this dataset are not known"}
