"""Look-alikes, entropy, hull and words: each verdict on features where it must come out so, and slow forms."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import spearmanr
from support.claims import HULL, LOOK_ALIKES, UNCERTAINTY, WORDS, made_claims
from support.features import made_features

from tembed.common.errors import TembedError
from tembed.lab.analysis.compared_runs import ByKind
from tembed.lab.analysis.features import Features, entropy
from tembed.lab.analysis.words import Words, find_words
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.hull import extreme
from tembed.lab.claims.look_alikes import class_distances
from tembed.lab.claims.mixed_words import shared_words
from tembed.lab.claims.uncertainty import (
    class_vector_gap,
    near,
    passage_gaps,
    scaled_embedding,
    zero_correlation,
)
from tembed.lab.data.catalogue import dataset

CIFAR = dataset("cifar10").classes
PAIRS, PASSAGES = dataset("cifar10").look_alikes, dataset("cifar10").passages
LABELS = np.repeat(np.arange(10), 8)
SAMPLES = HalfSamples.draw(LABELS, 10, resamples=30)
NOISE = made_features(LABELS, (2, 2), 10, 16, seed=77)


def networks(*run: Features, untrained: tuple[Features, ...] = ()) -> ByKind[Features]:
    return {"run": run, "untrained": untrained}


def look_alike_claims(
    compared: ByKind[Features], pairs: Sequence[tuple[str, str]] = PAIRS, samples: HalfSamples = SAMPLES
) -> list[Claim]:
    return made_claims(LOOK_ALIKES, compared, samples, pairs=pairs, classes=CIFAR)


def uncertainty_claims(compared: ByKind[Features], pairs: Sequence[tuple[str, str]] = PASSAGES) -> list[Claim]:
    return made_claims(UNCERTAINTY, compared, SAMPLES, pairs=pairs, classes=CIFAR)


def hull_claim(compared: ByKind[Features]) -> Claim:
    (claim,) = corrected(made_claims(HULL, compared, SAMPLES, classes=CIFAR))
    return claim


def word_claim(compared: ByKind[Features], words: Words, samples: HalfSamples = SAMPLES) -> Claim:
    (claim,) = corrected(made_claims(WORDS, compared, samples, classes=CIFAR, words=words))
    return claim


def verdicts(claims: list[Claim]) -> dict[str, str]:
    return {claim.name: claim.weights.verdict for claim in corrected(claims)}


# --- look-alikes


def look_alikes(closeness: float, *, seed: int = 0) -> Features:
    """Patches predict their class; named pairs share ``closeness`` of their class vectors, or lie apart if negative."""
    rng = np.random.default_rng(seed)
    features = made_features(LABELS, (2, 2), 10, 16, seed)
    truth = LABELS[features.image_of]
    mixing = (np.eye(10)[truth] + 0.2 * rng.random((len(truth), 10))).astype(np.float32)
    values = np.eye(10, 16)
    for first, second in PAIRS:
        i, j = CIFAR.index(first), CIFAR.index(second)
        values[i], values[j] = (
            values[i] + closeness * values[j],
            values[j] + closeness * values[i],
        )
    values = values.astype(np.float32)
    softmax = mixing / mixing.sum(1, keepdims=True)
    return dataclasses.replace(features, softmax=softmax, mixing=mixing, values=values, embedding=mixing @ values)


@pytest.mark.parametrize(("closeness", "verdict"), [(0.7, "holds"), (-0.7, "does not hold"), (0.0, "unclear")])
def test_look_alikes_move_closer_where_their_class_vectors_are_close(closeness: float, verdict: str) -> None:
    claim, by_vectors = corrected(look_alike_claims(networks(look_alikes(closeness), untrained=(NOISE,))))
    assert (claim.weights.verdict, claim.part) == (verdict, "descriptive")
    assert (by_vectors.weights.verdict, by_vectors.part) == (verdict, "mechanistic")
    assert [control.name for control in claim.controls] == ["no change", "untrained network"]
    assert [control.name for control in by_vectors.controls] == ["random class vectors (5 draws)"]
    assert claim.shown[0].name.startswith("95% of other pairs (rank ")
    first, second = claim.notes
    assert first.startswith("automobile and truck (rank ")
    assert second.endswith(" of 45)")
    assert claim.value is not None
    assert closeness == 0 or np.sign(claim.value.value) == np.sign(closeness)


def test_class_distances_agree_with_a_loop_over_class_means() -> None:
    points = np.random.default_rng(3).normal(size=(len(LABELS) * 4, 5)).astype(np.float32)
    found = class_distances(points, SAMPLES)
    for draw in (0, 3):
        used = np.repeat(SAMPLES.rows[draw], 4)
        centres = [points[used & (np.repeat(LABELS, 4) == label)].mean(0) for label in range(10)]
        apart = [np.linalg.norm(centres[i] - centres[j]) for i in range(10) for j in range(i)]
        expected = np.linalg.norm(centres[1] - centres[3]) / np.mean(apart)
        assert found[draw, 1, 3] == found[draw, 3, 1] == pytest.approx(expected, rel=1e-5)


def test_pairs_must_be_classes_of_the_dataset() -> None:
    one = networks(NOISE)
    assert look_alike_claims(one, ())[0].weights.why.endswith("lists no pairs of look-alikes")
    with pytest.raises(TembedError, match=r"pairs 'bird' with 'zebra', but the dataset has no class 'zebra'"):
        look_alike_claims(one, (("bird", "zebra"),))
    with pytest.raises(TembedError, match=r"no class 'zebra'"):
        uncertainty_claims(one, (("zebra", "bird"),))
    deep = networks(dataclasses.replace(NOISE, embedding=None, mixing=None, values=None))
    claims = [*look_alike_claims(deep), hull_claim(deep)]
    claims += uncertainty_claims(deep)
    assert {claim.weights.verdict for claim in claims} == {"not measured"}


# --- entropy


def uncertain(*, passages: bool, flat: bool = True, scale: float = 1.0, flip: bool = False) -> Features:
    """Patches of one class, of two classes in equal shares and, if ``flat``, short ones of all classes.

    Entropy rises in this order. With ``passages`` the two classes are those of the named passages. ``flip`` makes the
    uncertain patches the long ones.
    """
    named = [(CIFAR.index(a), CIFAR.index(b)) for a, b in PASSAGES]
    pairs = named if passages else [(1, 3), (4, 6), (5, 7)]
    rng = np.random.default_rng(0)
    features = made_features(LABELS, (4, 4), 10, 16)
    kind = rng.integers(0, 14, len(features.image_of))
    truth = LABELS[features.image_of]
    mixing = np.where((flat & (kind == 0))[:, None], 0.02, np.eye(10)[truth])
    for number, (i, j) in enumerate(pairs, 1):
        mixing[kind == number] = (np.eye(10)[i] + np.eye(10)[j]) / 2
    mixing = (mixing + 0.001 * rng.random(mixing.shape)).astype(np.float32)
    softmax = mixing / mixing.sum(1, keepdims=True)
    values = np.eye(10, 16, dtype=np.float32)
    mixing = scale * mixing
    if flip:
        mixing = (softmax * (0.1 + np.square(entropy(softmax)))[:, None]).astype(np.float32)
    return dataclasses.replace(features, softmax=softmax, mixing=mixing, values=values, embedding=mixing @ values)


BLANK = made_features(LABELS, (4, 4), 10, 16, seed=5)


def test_entropy_claims_find_what_was_planted() -> None:
    planted = uncertain(passages=True, flat=False)
    claims = uncertainty_claims(networks(planted, untrained=(BLANK,)))
    found = {claim.name: claim for claim in corrected(claims)}
    assert found["entropy near class vectors"].weights.verdict == "holds"
    assert [control.title for control in found["entropy near class vectors"].controls] == [
        "no difference, by f'", "no difference, by f' / sum of its weights",
    ]  # fmt: skip
    passages = found["entropy in passages"]
    assert passages.weights.verdict == "holds"
    assert [control.name for control in passages.controls] == ["no difference", "untrained network"]
    assert [control.name for control in passages.shown] == ["95% of other pairs (rank 1 of 1001)"]
    assert passages.value is not None
    assert passages.value.value == pytest.approx(np.log(2), abs=0.1)
    assert found["entropy near zero"].notes["patches that match no class"].value == 0


def test_entropy_near_zero_is_compared_with_no_difference_alone() -> None:
    planted = uncertain(passages=True)
    compared = networks(planted, untrained=(planted,)) | {"many untrained": (planted, planted)}
    claim = corrected(uncertainty_claims(compared))[0]
    assert claim.weights.verdict == "holds"
    assert [control.name for control in claim.controls] == ["no difference"]
    assert [control.name for control in claim.shown] == [
        "many untrained networks (2 seeds)", "random class vectors (5 draws)",
    ]  # fmt: skip


def test_without_passages_nothing_is_measured() -> None:
    assert uncertainty_claims(networks(BLANK), ())[2].weights.verdict == "not measured"


def test_entropy_claims_fail_if_the_planted_structure_is_reversed() -> None:
    flipped = uncertain(passages=True, flip=True)
    found = verdicts(uncertainty_claims(networks(flipped)))
    assert found["entropy near zero"] == "does not hold"


def test_near_class_vectors_is_unclear_if_the_two_readings_disagree() -> None:
    """By f' the class vectors are close to zero, where the uncertain patches are; by the scaled ones they are not."""
    claim = corrected(uncertainty_claims(networks(uncertain(passages=True, scale=8.0))))[1]
    assert claim.weights.verdict == "unclear"
    first, second = (control.difference for control in claim.controls)
    assert first.value < 0 < second.value
    assert first.signed() in claim.weights.why
    assert second.signed() in claim.weights.why


def test_what_an_untrained_network_shows_as_well_is_unclear() -> None:
    """The planted structure is beyond doubt, but the control has it, too."""
    planted = uncertain(passages=True, flat=False)
    assert verdicts(uncertainty_claims(networks(planted, untrained=(planted,))))["entropy in passages"] == "unclear"
    words = worded(shared=True)
    claim = word_claim(networks(words, untrained=(words,)), find_words(words, 20))
    assert claim.weights.verdict == "unclear"


def test_passages_that_are_more_certain_than_their_ends_do_not_hold() -> None:
    """The patches between two class vectors predict one class, and those at the vectors predict all of them."""
    planted = uncertain(passages=True, flat=False)
    assert planted.mixing is not None
    total = planted.mixing.sum(1, keepdims=True)
    between = (planted.mixing / total).max(1) < 0.6
    softmax = np.where(between[:, None], 0.98 * np.eye(10)[0] + 0.002, 0.1).astype(np.float32)
    reversed_ = dataclasses.replace(planted, softmax=softmax)
    found = verdicts(uncertainty_claims(networks(reversed_)))
    assert found["entropy in passages"] == "does not hold"


def test_the_rank_correlation_is_spearmans_in_each_half_sample() -> None:
    features = dataclasses.replace(BLANK, embedding=np.round(BLANK.block_input, 0))  # with ties
    assert features.entropy is not None
    length = np.linalg.norm(features.embedding, axis=1)
    found = zero_correlation(features, SAMPLES)
    for draw in (0, 5):
        used = np.repeat(SAMPLES.rows[draw], 16)
        assert found[draw] == pytest.approx(-spearmanr(length[used], features.entropy[used]).statistic, abs=1e-6)


def test_points_near_a_vector_are_the_nearest_hundredth() -> None:
    distances = np.abs(np.arange(2000, dtype=np.float32) - 99.9)
    assert np.flatnonzero(near(distances)).tolist() == list(range(90, 110))


def test_gaps_agree_with_loops_over_the_nearest_patches() -> None:
    assert BLANK.values is not None
    assert BLANK.entropy is not None
    points, few = scaled_embedding(BLANK), SAMPLES.first(1)
    found = passage_gaps(BLANK, [(2, 7)], few)
    vectors = class_vector_gap(BLANK, few, scaled=True)
    for draw in (0, 1):
        used = np.flatnonzero(np.repeat(few.rows[draw], 16))
        count = max(10, round(0.01 * len(used)))

        def nearest(vector: np.ndarray, used: np.ndarray = used, count: int = count) -> set[int]:
            return set(used[np.argsort(np.linalg.norm(points[used] - vector, axis=1))[:count]])

        between = nearest((BLANK.values[2] + BLANK.values[7]) / 2)
        beside = (nearest(BLANK.values[2]) | nearest(BLANK.values[7])) - between
        expected = BLANK.entropy[list(between)].mean() - BLANK.entropy[list(beside)].mean()
        assert found[draw, 0] == pytest.approx(expected, abs=1e-5)
        close = set.union(*(nearest(vector) for vector in BLANK.values))
        rest = set(used) - close
        assert vectors[draw] == pytest.approx(
            BLANK.entropy[list(rest)].mean() - BLANK.entropy[list(close)].mean(), abs=1e-5
        )


# --- hull


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


def test_the_hull_gets_no_verdict_but_a_share() -> None:
    assert NOISE.mixing is not None
    total = np.where(np.arange(len(NOISE.mixing)) % 4 == 0, 0.9, 3.0)[:, None]
    mixing = (0.01 + NOISE.mixing).astype(np.float32)
    mixing = (mixing / mixing.sum(1, keepdims=True) * total).astype(np.float32)
    mixing[1] = 2 * np.eye(10)[3]
    claim = hull_claim(networks(dataclasses.replace(NOISE, mixing=mixing)))
    assert claim.weights.verdict == claim.method.verdict == "no verdict"
    assert claim.weights.why.endswith("by construction; as they are, 25.0% do")
    assert claim.notes["class vectors that are extreme"].value == pytest.approx(0.9)


# --- words


def worded(*, shared: bool) -> Features:
    """Half of the patches predict their class. The rest predict two classes: one is theirs if ``shared``."""
    rng = np.random.default_rng(0)
    features = made_features(LABELS, (4, 4), 10, 16)
    truth = LABELS[features.image_of]
    partner = truth ^ 1
    first = truth if shared else (truth + 2 * rng.integers(1, 5, len(truth))) % 10
    both = np.eye(10)[first] * 0.5 + np.eye(10)[first ^ 1 if not shared else partner] * 0.5
    p = np.where((rng.random(len(truth)) < 0.5)[:, None], np.eye(10)[truth], both)
    p = p + 0.02 * rng.random(p.shape)
    return dataclasses.replace(features, softmax=(p / p.sum(1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize(("shared", "verdict"), [(True, "holds"), (False, "does not hold")])
def test_patches_of_a_mixed_word_come_from_its_classes(shared: bool, verdict: str) -> None:
    features = worded(shared=shared)
    words = find_words(features, 20)
    claim = word_claim(networks(features, untrained=(BLANK,)), words)
    assert claim.weights.verdict == verdict
    assert claim.notes["words that mix classes"].value + claim.notes["words of one class"].value == 20
    assert claim.notes["share of a patch's score that comes from its 16 px"].value == 0.55


def test_a_seed_in_which_every_word_mixes_refutes_the_claim_for_the_method() -> None:
    features = worded(shared=True)
    truth = LABELS[features.image_of]
    both = 0.5 * np.eye(10, dtype=np.float32)[truth] + 0.5 * np.eye(10, dtype=np.float32)[truth ^ 1]
    noise = 0.02 * np.random.default_rng(1).random(both.shape).astype(np.float32)
    mixed = dataclasses.replace(features, softmax=(both + noise) / (both + noise).sum(1, keepdims=True))
    words = find_words(features, 20)
    for last, verdict in ((features, "holds"), (mixed, "does not hold")):
        compared = networks(features, features, last, untrained=(BLANK, BLANK, BLANK))
        claim = word_claim(compared, words, SAMPLES.first(20))
        assert claim.weights.verdict == "holds"
        assert claim.method.verdict == verdict, claim.method
    assert claim.method.why == "in 1 of 3 seeds, every word mixes classes: none is of a single class"


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_words_of_one_kind_only_do_not_hold(share: float) -> None:
    truth = LABELS[NOISE.image_of]
    p = share * np.eye(10)[truth] + (1 - share) * np.eye(10)[truth ^ 1]
    p += 0.02 * np.random.default_rng(1).random(p.shape)
    features = dataclasses.replace(NOISE, softmax=(p / p.sum(1, keepdims=True)).astype(np.float32))
    words = find_words(features, 10 if share == 1 else 5)
    claim = word_claim(networks(features, untrained=(BLANK,)), words)
    assert claim.weights.verdict == "does not hold"
    assert claim.weights.why.startswith("no word mixes" if share == 1 else "every word mixes classes")


def test_words_of_noise_are_not_a_finding() -> None:
    claim = word_claim(networks(NOISE, untrained=(BLANK,)), find_words(NOISE, 20))
    assert claim.weights.verdict in ("unclear", "does not hold")


def test_the_share_of_the_rarest_class_agrees_with_a_loop() -> None:
    features = worded(shared=True)
    words = find_words(features, 20)
    rarest, outside = shared_words(features, words, SAMPLES.first(2))
    truth, weight, inside, other = LABELS[features.image_of], 0, 0.0, 0.0
    for word, mixture in enumerate(words.mixtures()):
        if len(mixture) > 1:
            classes = truth[words.word_of == word]
            weight += len(classes)
            inside += len(classes) * min((classes == k).mean() for k in mixture)
            other += len(classes) * np.mean([(classes == k).mean() for k in range(10) if k not in mixture])
    assert rarest[0] == pytest.approx(inside / weight)
    assert outside[0] == pytest.approx(other / weight)
    assert (rarest > 0.3).all()
