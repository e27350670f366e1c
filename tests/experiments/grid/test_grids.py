"""A grid file is read as it says, and a mistake in it names the way out."""

from pathlib import Path

import pytest

from tembed.errors import TembedError
from tembed.experiments.grid.folders import find_places, folder_name
from tembed.experiments.grid.specification import builtin_names, load_grid
from tembed.paper import LABELS
from tembed.training.recipe import Recipe


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_the_papers_grids_have_the_papers_cells() -> None:
    assert builtin_names() == ["depth", "lambda", "maximizers", "table1"]
    table = load_grid("table1").recipes
    assert len(table) == 10 * 3 * 3
    assert {recipe.model for recipe in table} == set(LABELS)
    assert all(recipe == Recipe.paper(recipe.model, recipe.data, seed=recipe.seed).complete() for recipe in table)
    swaps = {(recipe.maximizer, recipe.batch_size) for recipe in load_grid("maximizers").recipes}
    assert swaps == {(m, b) for m in ("bn-relu", "entropic", "perturbed", "perturbed-sampled") for b in (8, 32)}
    assert {recipe.weight for recipe in load_grid("lambda").recipes} >= {0.0, 0.5}
    assert set(load_grid("depth").recipes) < set(table)


def test_changes_take_the_place_of_a_grids_own_keys() -> None:
    grid = load_grid("table1", {"data": ["cifar10"], "model": ["RN26-Ours"], "seeds": 2, "epochs": 3, "recipe": "fast"})
    assert grid.recipes == tuple(Recipe.fast("rn26-embed", "cifar10", epochs=3, seed=s).complete() for s in (0, 1))


def test_lists_make_every_combination_and_doubles_are_one(tmp_path: Path) -> None:
    text = 'model = ["rn26", "RN26"]\ndata = "tiny"\nlr = [1e-3, 2e-3]\nseed = [3, 7]\nbetas = [0.8, 0.9]'
    recipes = load_grid(written(tmp_path, text)).recipes
    assert [(r.lr, r.seed) for r in recipes] == [(1e-3, 3), (1e-3, 7), (2e-3, 3), (2e-3, 7)]
    assert {r.betas for r in recipes} == {(0.8, 0.9)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model = "rn26"\ndata = "tiny"\nepocs = 3', "unknown key 'epocs'; did you mean 'epochs'?"),
        ('models = ["rn26"]\ndata = "tiny"', "unknown key 'models'; did you mean 'model'?"),
        ('model = "rn62"\ndata = "tiny"', "unknown model 'rn62'; near it: rn26"),
        ('data = "tiny"', "it has no 'model'"),
        ('model = "rn26"\ndata = "tiny"\nepochs = "many"', "epochs cannot be 'many'"),
        ('model = "rn26"\ndata = "tiny"\nweight = 0.5', "`weight` does not apply to rn26"),
        ('model = "rn26"\ndata = "tiny"\nseeds = 0', "seeds is 0"),
        ('model = "rn26"\ndata = "tiny"\nseeds = 2\nseed = 1', "both seed and seeds"),
        ('model = []\ndata = "tiny"', "model is an empty list"),
        ('model = "rn26"\ndata = "tiny"\nrecipe = "slow"', "recipe is 'slow'"),
        ("model = rn26", "is not TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_way_out(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TembedError) as caught:
        load_grid(written(tmp_path, text))
    assert said in str(caught.value)
    assert str(tmp_path / "mine.toml") in str(caught.value)


def test_an_unknown_grid_names_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="did you mean 'table1'"):
        load_grid("tabel1")
    with pytest.raises(TembedError, match=r"nothing\.toml cannot be read as a grid \(No such file"):
        load_grid(str(tmp_path / "nothing.toml"))


def test_changing_one_setting_changes_only_the_names_that_it_touches() -> None:
    before = {folder_name(recipe) for recipe in load_grid("table1").recipes}
    more = {folder_name(recipe) for recipe in load_grid("table1", {"seeds": 4}).recipes}
    assert len(before) == 90
    assert before < more
    assert len(more) == 120
    assert not before & {folder_name(recipe) for recipe in load_grid("table1", {"epochs": 9}).recipes}


def test_a_run_is_found_by_its_recipe_whatever_its_folder_is_called(tmp_path: Path) -> None:
    from tembed.files import write_json

    recipe = Recipe.fast("rn26", "tiny").complete()
    (tmp_path / "by-hand").mkdir()
    write_json(tmp_path / "by-hand" / "recipe.json", recipe.plain())
    other = Recipe.fast("rn26", "tiny", seed=1).complete()
    assert [place.name for place in find_places((recipe, other), tmp_path)] == ["by-hand", folder_name(other)]
