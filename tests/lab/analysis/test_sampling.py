"""Which images are sampled, and which groupings are accepted."""

import json
from pathlib import Path

import pytest
import torch
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.lab.analysis.sampling import (
    default_per_class,
    default_sample,
    find_groups,
    group_labels,
    read_groups,
    sample,
)
from tembed.lab.data.parts.world import CLASSES, generate


def test_a_sample_has_the_same_number_of_each_class_and_repeats_with_its_seed() -> None:
    images = generate(100, size=8)
    found = sample(images, 4, seed=1)
    assert found.labels.bincount().tolist() == [4] * 10
    assert found.indices.tolist() == sample(images, 4, seed=1).indices.tolist()
    assert found.indices.tolist() != sample(images, 4, seed=2).indices.tolist()
    assert set(found.indices.tolist()) <= set(sample(images, 6, seed=1).indices.tolist())
    assert [default_per_class(classes) for classes in (2, 10, 100, 1000)] == [80, 80, 8, 2]
    assert [default_per_class(classes, fast=True) for classes in (1, 2, 10, 100, 1000)] == [80, 50, 10, 2, 2]
    with pytest.raises(TembedError, match=r"`images_per_class` is 11, but class .* has 10 images .* give 10 or fewer"):
        sample(images, 11)
    single = images.subset(
        torch.cat([torch.nonzero(images.labels != 3).flatten(), torch.nonzero(images.labels == 3)[0]])
    )
    with pytest.raises(TembedError, match=r"has 1 image in this subset: leave it out, and such classes are skipped"):
        sample(single, 4)
    with pytest.raises(TembedError, match="`images_per_class` is 1; it must be at least 2"):
        sample(images, 1)


def test_by_default_as_many_images_are_used_as_there_are() -> None:
    made = generate(120, size=8)
    counts = [12, 3, 2, 1, 0, 10, 10, 10, 10, 10]
    keep = [torch.nonzero(made.labels == label).flatten()[:count] for label, count in enumerate(counts)]
    images, said = made.subset(torch.cat(keep)), Said()
    found = default_sample(images, 0, said)
    assert found.labels.bincount(minlength=10).tolist() == [12, 3, 2, 0, 0, 10, 10, 10, 10, 10]
    assert said.lines == [
        f"left out, with fewer than 2 test images: {CLASSES[3]}, {CLASSES[4]}",
        "using 2 to 12 test images of each of 8 classes",
    ]
    one = images.subset(torch.nonzero(images.labels == 0).flatten())
    with pytest.raises(
        TembedError, match="compares classes with 2 or more test images, and this dataset has 1 of them"
    ):
        default_sample(one)
    silent = Said()
    assert default_sample(generate(1000, size=8), 0, silent).labels.bincount().tolist() == [80] * 10
    assert silent.lines == []


def test_groupings_are_built_in_or_given() -> None:
    for data, count in (("cifar10", 2), ("cifar100", 20), ("parts", 2)):
        groups = find_groups(data)
        assert groups is not None
        assert len(groups) == count
    assert find_groups("mini-imagenet") is None
    mine = {"a": ["x"], "b": ["y"]}
    assert find_groups("cifar10", mine) is mine
    assert group_labels(mine, ("y", "x")).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"a": ["plane", "zebra"], "b": ["car"]},
            "super-class 'a' lists the unknown class 'zebra'; known: plane, car",
        ),
        ({"a": ["plane"], "b": ["plane"]}, "class 'plane' is in two super-classes"),
        ({"a": ["plane"], "b": ["car"]}, "no super-class lists truck, ship"),
        ({"a": CLASSES}, "at least two"),
        ({"a": CLASSES, "b": []}, "super-class 'b' has no classes"),
    ],
)
def test_a_wrong_grouping_is_named(groups: dict[str, list[str]], message: str) -> None:
    with pytest.raises(TembedError, match=message):
        group_labels(groups, CLASSES)


def test_a_grouping_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps({"a": ["x"], "b": ["y", "z"]}))
    assert read_groups(path) == {"a": ["x"], "b": ["y", "z"]}
    for wrong in ("[1]", '{"a": "x"}', "{", '{"a": [1]}'):
        path.write_text(wrong)
        with pytest.raises(TembedError, match=r"groups\.json"):
            read_groups(path)
    with pytest.raises(TembedError, match="cannot be read"):
        read_groups(tmp_path / "none.json")
