"""Claims agree with plain loops, closed forms and a linear program."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import spearmanr
from support.features import made_features

from tembed.analysis.claims.hull import extreme, hull_claims
from tembed.analysis.claims.look_alikes import look_alike_claims, pair_distance
from tembed.analysis.claims.separation import probe, separation_claims
from tembed.analysis.claims.statistics import Bootstrap, combine, decide
from tembed.analysis.claims.uncertainty import near, rank_correlation, uncertainty_claims
from tembed.analysis.features import Features
from tembed.claims import Measure
from tembed.data import dataset
from tembed.errors import TembedError

LABELS = np.repeat(np.arange(4), 8)
CIFAR = ("airplane", "automobile", "bird", "ship", "truck")
PAIRS, PASSAGES = dataset("cifar10").look_alikes, dataset("cifar10").passages


def separated(features: Features, strength: float) -> Features:
    """The same features with a block that pushes the even classes away from the odd ones."""
    push = np.where(features.labels[features.image_of] % 2 == 0, strength, -strength)[:, None]
    return dataclasses.replace(features, block_output=(features.block_input + push).astype(np.float32))


def test_separation_holds_for_a_block_that_separates_and_is_unclear_for_one_that_does_not() -> None:
    features, groups = made_features(LABELS), np.array([0, 1, 0, 1])
    for strength, verdict in ((4.0, "holds"), (0.0, "unclear")):
        claims = separation_claims(separated(features, strength), separated(features, 0.0), groups)
        assert [claim.name for claim in claims[1:]] == [
            "super-class purity", "super-class silhouette", "super-class probe",
        ]  # fmt: skip
        assert {claim.verdict for claim in claims[1:]} == {verdict}
        assert all(set(claim.values) == {"baseline", "block input", "block output"} for claim in claims)
    worse = separation_claims(separated(features, 0.0), separated(features, 4.0), groups)
    assert worse[1].verdict == "does not hold"


def test_without_super_classes_or_block_output_a_reason_is_given() -> None:
    features = made_features(LABELS)
    claims = separation_claims(features, None, None)
    assert claims[0].verdict != "not measured"
    assert "no baseline given" in claims[0].why
    assert [claim.verdict for claim in claims[1:]] == ["not measured"] * 3
    assert "no super-classes" in claims[1].why
    deep = dataclasses.replace(features, embedding=None, mixing=None, values=None)
    claims = separation_claims(deep, None, np.array([0, 1, 0, 1]))
    assert {claim.verdict for claim in claims} == {"not measured"}
    assert all("deep supervision" in claim.why for claim in claims)
    rest = [*look_alike_claims(deep, PAIRS, CIFAR), *uncertainty_claims(deep, PASSAGES, CIFAR)]
    assert {claim.verdict for claim in [*rest, *hull_claims(deep, CIFAR)]} == {"not measured"}


def test_the_probe_is_tested_on_other_images_than_it_was_fitted_on() -> None:
    """The features identify the image only: a probe fitted on the same images would always be right."""
    images, per_image = 40, 4
    labels = np.repeat([0, 1], images // 2)
    image_of = np.repeat(np.arange(images), per_image)
    space = np.eye(images, dtype=np.float32)[image_of]
    right = probe(space, image_of, labels, labels[image_of])
    assert 0.2 < right.mean() < 0.8


def test_the_bootstrap_resamples_whole_images_of_each_class() -> None:
    bootstrap = Bootstrap(LABELS, seed=1)
    for label in range(4):
        assert (bootstrap.weights[:, label == LABELS].sum(1) == 8).all()
    by_image = np.random.default_rng(0).normal(size=len(LABELS))
    whole = bootstrap.mean(np.repeat(by_image, 4))
    assert whole.value == pytest.approx(by_image.mean())
    assert whole.low is not None
    assert whole.high is not None
    spread = np.sqrt(sum(by_image[label == LABELS].var() / 8 for label in range(4)) / 16)
    assert whole.high - whole.low == pytest.approx(2 * 1.96 * spread, rel=0.2)
    half = np.where(np.arange(4 * len(LABELS)) % 4 == 0, np.repeat(by_image, 4), np.nan)
    assert bootstrap.mean(half).value == pytest.approx(by_image.mean())


def test_verdicts_follow_the_interval() -> None:
    assert decide(Measure(0.2, 0.1, 0.3), "x")[0] == "holds"
    assert decide(Measure(-0.2, -0.3, -0.1), "x")[0] == "does not hold"
    assert decide(Measure(0.2, -0.1, 0.3), "x") == ("unclear", "x +0.200 [-0.100, +0.300]")
    assert combine([("holds", "a"), ("unclear", "b")]) == ("unclear", "a; b")
    assert combine([("unclear", "a"), ("does not hold", "b")])[0] == "does not hold"


def test_pair_distance_agrees_with_a_loop_over_class_means() -> None:
    points = np.random.default_rng(3).normal(size=(len(LABELS) * 4, 5)).astype(np.float32)
    owner = np.repeat(LABELS, 4)
    centres = [points[owner == label].mean(0) for label in range(4)]
    apart = [np.linalg.norm(centres[i] - centres[j]) for i in range(4) for j in range(i)]
    expected = np.linalg.norm(centres[1] - centres[3]) / np.mean(apart)
    found = pair_distance(points, LABELS, (1, 3))(np.ones((1, len(LABELS))))
    assert found[0] == pytest.approx(expected, rel=1e-5)


def test_look_alikes_and_passages_are_classes_of_the_dataset() -> None:
    features = made_features(np.repeat(np.arange(5), 6), classes=5)
    names = [claim.name for claim in look_alike_claims(features, PAIRS, CIFAR)]
    assert names == [f"look-alikes move closer: {pair}" for pair in ("automobile and truck", "airplane and bird")]
    (other,) = look_alike_claims(features, (), CIFAR)
    assert other.verdict == "not measured"
    assert "lists no pairs" in other.why
    with pytest.raises(TembedError, match=r"pairs 'bird' with 'zebra', but the dataset has no class 'zebra'"):
        look_alike_claims(features, (("bird", "zebra"),), CIFAR)
    with pytest.raises(TembedError, match=r"no class 'zebra'"):
        uncertainty_claims(features, (("zebra", "bird"),), CIFAR)


def test_the_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(size=40).round(1)
    b = a + rng.normal(size=40)
    found = rank_correlation(a, b, 10)(np.ones((1, 10)))[0]
    assert found == pytest.approx(spearmanr(a, b).statistic)


def test_entropy_claims_find_what_was_built_in() -> None:
    """Patches of one class, of two in equal shares, and short ones of all classes: entropy rises in this order."""
    classes, per = len(CIFAR), 30
    kinds = [np.eye(classes, dtype=np.float32)[k] for k in range(classes)]
    kinds += [(kinds[i] + kinds[j]) / 2 for i, j in ((2, 0), (1, 4), (0, 3))]
    kinds += [np.full(classes, 0.02, np.float32)]
    mixing = np.repeat(np.array(kinds, np.float32), per, axis=0)
    softmax = mixing / mixing.sum(1, keepdims=True)
    labels = np.arange(len(mixing)) % classes
    values = np.eye(classes, 7, dtype=np.float32)
    features = dataclasses.replace(
        made_features(labels, (1, 1), classes, 7),
        mixing=mixing, softmax=softmax, values=values, embedding=mixing @ values,
    )  # fmt: skip
    claims = {claim.name: claim for claim in uncertainty_claims(features, PASSAGES, CIFAR)}
    assert claims["entropy near zero"].verdict == "holds"
    assert claims["entropy near class vectors"].verdict == "holds"
    passage = claims["entropy in passages: automobile to truck"]
    assert passage.verdict == "holds"
    assert passage.values["passage"].value == pytest.approx(np.log(2), abs=1e-5)
    assert passage.values["near the two class vectors"].value == pytest.approx(0, abs=1e-5)
    assert claims["no match"].values["block"].value == 0
    far = dataclasses.replace(features, mixing=8 * mixing, embedding=8 * mixing @ values)
    claim = {claim.name: claim for claim in uncertainty_claims(far, PASSAGES, CIFAR)}["entropy near class vectors"]
    assert claim.verdict == "does not hold"
    assert claim.why.endswith("where the claim holds")


def test_points_near_a_vector_are_the_nearest_hundredth() -> None:
    points = np.arange(2000, dtype=np.float32)[:, None]
    assert np.flatnonzero(near(points, np.array([99.9], np.float32))).tolist() == list(range(90, 110))


def in_hull(point: np.ndarray, others: np.ndarray) -> bool:
    equal = np.concatenate([others.T, np.ones((1, len(others)))])
    return bool(linprog(np.zeros(len(others)), A_eq=equal, b_eq=[*point, 1], bounds=(0, None)).success)


@pytest.mark.parametrize("seed", range(4))
def test_hull_membership_agrees_with_a_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, points = 3, 40
    values = rng.normal(size=(classes, 5))
    mixing = np.maximum(rng.normal(-0.3, 0.6, size=(points, classes)), 0)
    embedding = mixing @ values
    corners = np.concatenate([values, np.zeros((1, 5))])
    for p, f in zip(mixing, embedding, strict=True):
        if abs(p.sum() - 1) > 1e-3:
            assert in_hull(f, corners) == (p.sum() <= 1)
    for k, is_vertex in enumerate(extreme(mixing.astype(np.float32))):
        others = np.concatenate([embedding, np.delete(values, k, 0), np.zeros((1, 5))])
        assert in_hull(values[k], others) == (not is_vertex)


def test_the_hull_claim_follows_the_sum_of_the_weights() -> None:
    features = made_features(LABELS)
    assert features.mixing is not None
    small = dataclasses.replace(features, mixing=features.mixing / features.mixing.sum(1, keepdims=True).clip(1))
    (claim,) = hull_claims(small, "abcd")
    assert claim.verdict == "holds"
    assert claim.values["patches inside"].value == 1
    (claim,) = hull_claims(dataclasses.replace(features, mixing=5 * features.mixing), "abcd")
    assert claim.verdict == "does not hold"
