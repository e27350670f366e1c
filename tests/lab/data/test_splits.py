"""The paper's pooled split and the published one."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tembed.common.errors import TembedError
from tembed.lab.data.splits import has_own_split, official_split, paper_split, split_indices
from tembed.lab.data.subsets import CODES

CLASSES = tuple("abcdefghij")
POOL = np.repeat(np.arange(10), 6000)
PINNED = "32e9ed7a23863d51c7687bfa29ac0ccb47f5b58189dafddd29e35bbc60fbbd8c"


def test_sixty_thousand_images_split_as_in_the_paper() -> None:
    indices = paper_split(POOL, CLASSES, seed=0)
    assert [len(subset) for subset in indices] == [39_000, 9_000, 12_000]
    for subset, each in zip(indices, (3900, 900, 1200), strict=True):
        assert np.bincount(POOL[subset]).tolist() == [each] * 10


def test_the_split_is_the_same_on_every_machine_and_in_every_version() -> None:
    indices = np.concatenate(paper_split(POOL, CLASSES, seed=0)).astype("<i8")
    assert hashlib.sha256(indices.tobytes()).hexdigest() == PINNED


def test_a_split_is_the_order_of_the_hashes_of_seed_and_index() -> None:
    """Ten images of one class, sorted by hash: the first two are for testing, the next two for validation."""
    order = sorted(range(10), key=lambda i: hashlib.sha256(b"tembed split:7:%d" % i).hexdigest())
    indices = paper_split(np.zeros(10, np.int64), ("a",), seed=7)
    assert indices.test.tolist() == sorted(order[:2])
    assert indices.val.tolist() == sorted(order[2:4])
    assert indices.train.tolist() == sorted(order[4:])


def test_half_an_image_is_rounded_up() -> None:
    """15 % of 30 images are 4.5, and 20 % of 13 are 2.6."""
    assert [len(subset) for subset in paper_split(np.zeros(30, np.int64), ("a",), 0)] == [19, 5, 6]
    assert [len(subset) for subset in paper_split(np.zeros(13, np.int64), ("a",), 0)] == [8, 2, 3]


def test_another_seed_gives_another_split() -> None:
    first, second = (paper_split(POOL, CLASSES, seed).test for seed in (0, 1))
    assert len(np.intersect1d(first, second)) < 0.25 * len(first)


@given(st.lists(st.integers(4, 40), min_size=1, max_size=6), st.integers(0, 1 << 60))
def test_every_image_is_in_exactly_one_subset_and_every_class_in_all(counts: list[int], seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    indices = paper_split(labels, tuple(map(str, counts)), seed)
    assert sorted(np.concatenate(indices).tolist()) == list(range(len(labels)))
    for subset in indices:
        assert set(labels[subset]) == set(range(len(counts)))


def test_a_class_with_too_few_images_is_named() -> None:
    with pytest.raises(TembedError, match=r"class 'b' has 3 images, too few to split.*at least 4"):
        paper_split(np.array([0] * 9 + [1] * 3), ("a", "b"), 0)


def test_the_official_split_keeps_the_published_test_set_and_takes_a_tenth_of_training() -> None:
    subsets = np.where(np.arange(60_000) % 6 == 5, CODES["test"], CODES["train"]).astype(np.uint8)
    indices = official_split(POOL, subsets, CLASSES, seed=0)
    assert [len(subset) for subset in indices] == [45_000, 5_000, 10_000]
    assert (subsets[indices.test] == CODES["test"]).all()
    assert np.bincount(POOL[indices.val]).tolist() == [500] * 10
    assert sorted(np.concatenate(indices).tolist()) == list(range(60_000))


def test_the_split_is_chosen_by_its_name() -> None:
    subsets = np.where(np.arange(60_000) % 6 == 5, CODES["test"], CODES["train"]).astype(np.uint8)
    stored = SimpleNamespace(name="mine", labels=POOL, classes=CLASSES, subsets=subsets)
    sizes = [len(split_indices(stored, split, 0).test) for split in ("paper", "official", None)]  # type: ignore[arg-type]
    assert sizes == [12_000, 10_000, 10_000]  # None: its own
    with pytest.raises(TembedError, match="`split` is 'half'; it must be 'paper' or 'official'"):
        split_indices(stored, "half", 0)  # type: ignore[arg-type]


def test_a_published_validation_set_is_kept() -> None:
    subsets = np.array([CODES["train"], CODES["val"], CODES["test"], CODES["train"]], np.uint8)
    indices = official_split(np.zeros(4, np.int64), subsets, ("a",), seed=0)
    assert [subset.tolist() for subset in indices] == [[0, 3], [1], [2]]


def test_the_official_split_of_imagenets_layout_tests_on_val_and_takes_a_tenth_of_train() -> None:
    subsets = np.where(np.arange(60_000) % 600 < 500, CODES["train"], CODES["val"]).astype(np.uint8)
    indices = official_split(POOL, subsets, CLASSES, seed=0)
    as_test = np.where(subsets == CODES["val"], CODES["test"], subsets)
    for mine, other in zip(indices, official_split(POOL, as_test, CLASSES, seed=0), strict=True):
        assert (mine == other).all()
    assert (subsets[indices.test] == CODES["val"]).all()
    assert len(indices.test) == (subsets == CODES["val"]).sum()
    assert len(indices.val) == pytest.approx(0.1 * (subsets == CODES["train"]).sum(), abs=len(CLASSES))


@pytest.mark.parametrize("marks", [[], [CODES["train"]] * 9, [CODES["val"], CODES["test"]]])
def test_without_train_and_test_marks_there_is_no_official_split(marks: list[int]) -> None:
    subsets = np.zeros(9, np.uint8)
    subsets[: len(marks)] = marks
    missing = "test" if CODES["train"] in marks else "train"
    assert not has_own_split(subsets)
    with pytest.raises(TembedError, match=rf"no image is marked as {missing}.*set `split` to 'paper'"):
        official_split(np.zeros(9, np.int64), subsets, ("a",), 0)


@pytest.mark.parametrize("count", [2, 3, 14, 15])
def test_at_least_one_training_image_of_a_small_class_validates(count: int) -> None:
    subsets = np.array([CODES["train"]] * count + [CODES["test"]], np.uint8)
    indices = official_split(np.zeros(count + 1, np.int64), subsets, ("a",), 0)
    assert [len(subset) for subset in indices] == [count - max(1, (count + 5) // 10), max(1, (count + 5) // 10), 1]


def test_too_few_training_images_for_an_official_split_are_named() -> None:
    labels = np.array([0, 0, 1, 2, 0, 1])
    subsets = np.array([CODES["train"]] * 4 + [CODES["test"]] * 2, np.uint8)
    with pytest.raises(
        TembedError, match=r"class 'b' has 1 training image, too few .* \(2 such classes\): give it at least 2"
    ):
        official_split(labels, subsets, ("a", "b", "c"), 0)
    subsets[3:] = [CODES["val"], CODES["val"], CODES["test"]]
    with pytest.raises(TembedError, match="class 'c' has 0 training images: give it at least 1, or leave the class"):
        official_split(labels, subsets, ("a", "b", "c"), 0)
