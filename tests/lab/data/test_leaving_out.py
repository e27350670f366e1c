"""Scenes without parts and images without a cell: nothing else changes, and the labels remain possible."""

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation
from support.datasets import planes

from tembed.common.errors import TembedError
from tembed.lab.data.batches import IncompletePixels, Pixels, training_batches
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.leaving_out import draw_cells, incomplete_scenes, ownership, possible_classes, without_cells
from tembed.lab.data.parts import CLASSES, OWNERS, PARTS, PARTS_OF, draw, generate
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.recipe import Recipe


@pytest.fixture(scope="module")
def world() -> ImageSet:
    return generate(1500)


def test_a_scene_without_parts_differs_only_where_they_were(world: ImageSet) -> None:
    indices = np.arange(1, 300, 10)  # cars
    whole = draw(indices)
    np.testing.assert_array_equal(whole.pixels(), world.pixels(indices))
    assert whole.labels.tolist() == [CLASSES.index("car")] * 30
    without = draw(indices, without=("wheel", "beak"))
    assert whole.pool_part_map is not None
    assert without.pool_part_map is not None
    wheel = PARTS.index("wheel") + 1
    assert (whole.pool_part_map == wheel).any()
    assert not (without.pool_part_map == wheel).any()
    behind = without.pool_part_map[whole.pool_part_map == wheel]
    assert PARTS.index("panel") + 1 in behind, "what lay behind the wheels is drawn"
    changed = (whole.pixels() != without.pixels()).any(-1)
    near = np.stack([binary_dilation(one == wheel, iterations=2) for one in whole.pool_part_map])
    assert changed.any()
    assert not (changed & ~near).any()
    with pytest.raises(TembedError, match="`without` names 'weel'"):
        draw(indices, without=("weel",))


def test_the_record_knows_the_owners_of_parts() -> None:
    record = dataset("parts")
    assert list(record.owners) == list(PARTS)
    assert record.owners["wheel"] == OWNERS["wheel"] == ("car", "truck", "train")
    has = ownership(record)
    assert [PARTS[k] for k in np.flatnonzero(has[CLASSES.index("fish")])] == sorted(PARTS_OF["fish"], key=PARTS.index)


def test_the_possible_classes_have_all_parts_that_are_kept() -> None:
    has = ownership(dataset("parts"))
    kept = np.array([[part in parts for part in PARTS] for parts in (("wheel",), ("fin", "eye"), ())])
    found = [{CLASSES[k] for k in np.flatnonzero(row)} for row in possible_classes(kept, has)]
    assert found == [{"car", "truck", "train"}, {"fish"}, set(CLASSES)]


def test_half_of_the_scenes_are_incomplete_and_labels_are_spread(world: ImageSet) -> None:
    record = dataset("parts")
    made = incomplete_scenes(world, record, seed=0)
    same = (made.pixels() == world.pixels()).all((1, 2, 3))
    assert 0.5 < same.mean() < 0.65, "half are whole, and a few of the others lack no part or a hidden one"
    assert (made.labels == world.labels)[torch.from_numpy(same)].float().mean() > 0.97
    assert (made.labels == world.labels)[torch.from_numpy(~same)].float().mean() < 0.7
    has, shown = ownership(record), np.stack([np.isin(np.arange(1, len(PARTS) + 1), one) for one in made.part_map])
    assert possible_classes(shown, has)[np.arange(len(made)), made.labels.numpy()].all()
    empty = ~shown.any(1)
    assert empty.sum() > 20, "some scenes lack all parts"
    counts = made.labels[torch.from_numpy(empty)].bincount(minlength=10)
    assert counts.max() < 0.3 * empty.sum(), "nothing is left, so every class is possible"
    subset = incomplete_scenes(world.subset(torch.tensor([7, 3])), record, seed=0)
    assert torch.equal(planes(subset), planes(made)[[7, 3]]), "it depends only on the scene and the seed"
    assert subset.labels.tolist() == made.labels[[7, 3]].tolist()
    assert not torch.equal(incomplete_scenes(world, record, seed=1).labels, made.labels)
    with pytest.raises(TembedError, match="`left_out` is parts, but cifar10"):
        incomplete_scenes(world, dataset("cifar10"), seed=0)


def test_a_deleted_cell_is_the_mean_and_nothing_else_changes() -> None:
    x = torch.rand(17, 3, 12, 20) + 1
    found = without_cells(x, np.arange(-1, 16))
    for k in range(17):
        expected = x[k].clone()
        if k:
            row, column = divmod(k - 1, 4)
            expected[:, 3 * row : 3 * row + 3, 5 * column : 5 * column + 5] = 0
        assert torch.equal(found[k], expected)
    cells = draw_cells(4000, torch.Generator().manual_seed(0))
    assert 0.45 < (cells < 0).mean() < 0.55
    assert np.bincount(cells[cells >= 0]).min() > 80


def test_training_batches_lack_cells_in_half_of_the_images(world: ImageSet) -> None:
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    plain = training_batches(world, 100, mean=mean, std=std)
    lacking = training_batches(world, 100, mean=mean, std=std, lacks_cells=True)
    differs = (plain.batch(0, 2)[0] != lacking.batch(0, 2)[0]).flatten(2).any(1).sum(1)
    assert set(differs.tolist()) <= {0, *range(50, 65)}, "at most a cell of 8 x 8 pixels"
    assert 30 < (differs > 0).sum() < 70
    again = (plain.batch(1, 2)[0] != lacking.batch(1, 2)[0]).flatten(1).any(1)
    assert not torch.equal(again, differs > 0), "every epoch draws anew"


@pytest.mark.usefixtures("use_worlds")
def test_a_recipe_says_what_is_left_out() -> None:
    inputs = load_inputs(Recipe.paper("rn20", "tiny", left_out="cells"))
    assert isinstance(inputs.train.source, IncompletePixels)
    assert isinstance(inputs.val.source, Pixels)
    with pytest.raises(TembedError, match="tiny does not know"):
        load_inputs(Recipe.paper("rn20", "tiny", left_out="parts"))
    with pytest.raises(TembedError, match="`left_out` does not go with `freeze`"):
        Recipe.paper("tembed:rn26@stage3", "tiny", freeze=True, left_out="cells").complete()
