"""A grid file gives the recipes that it describes, and a mistake in it gives an error with a way out."""

from pathlib import Path

import pytest

from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.lab.grid import preview
from tembed.lab.grid.grid_file import builtin_names, load_grid
from tembed.lab.grid.jobs import locate_runs
from tembed.lab.grid.preview import DataSize, data_size
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import run_name
from tembed.paper import LABELS


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
    assert swaps == {(m, b) for m in ("bn-relu", "entropic", "perturbed") for b in (8, 32)}
    assert {recipe.weight for recipe in load_grid("lambda").recipes} >= {0.0, 0.5}
    assert set(load_grid("depth").recipes) < set(table)


def test_changes_override_a_grids_own_keys() -> None:
    grid = load_grid("table1", {"data": ["cifar10"], "model": ["RN26-Ours"], "seeds": 2, "epochs": 3, "preset": "fast"})
    assert grid.recipes == tuple(Recipe.fast("rn26-embed", "cifar10", epochs=3, seed=s).complete() for s in (0, 1))


def test_lists_make_every_combination_and_duplicates_are_merged(tmp_path: Path) -> None:
    text = 'model = ["rn26", "RN26"]\ndata = "tiny"\nlr = [1e-3, 2e-3]\nseed = [3, 7]\nbetas = [0.8, 0.9]'
    recipes = load_grid(written(tmp_path, text)).recipes
    assert [(r.lr, r.seed) for r in recipes] == [(1e-3, 3), (1e-3, 7), (2e-3, 3), (2e-3, 7)]
    assert {r.betas for r in recipes} == {(0.8, 0.9)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model = "rn26"\ndata = "tiny"\nepocs = 3', "unknown key 'epocs'; did you mean 'epochs'?"),
        ('models = ["rn26"]\ndata = "tiny"', "unknown key 'models'; did you mean 'model'?"),
        ('model = "rn62"\ndata = "tiny"', "unknown model 'rn62'"),
        ('data = "tiny"', "it has no 'model'"),
        ('model = "rn26"\ndata = "tiny"\nepochs = "many"', "cannot be 'many'"),
        ('model = "rn26"\ndata = "tiny"\nweight = 0.5', "does not apply to rn26"),
        ('model = "rn26"\ndata = "tiny"\nseeds = 0', "seeds is 0"),
        ('model = "rn26"\ndata = "tiny"\nseeds = 2\nseed = 1', "both seed and seeds"),
        ('model = []\ndata = "tiny"', "model is an empty list"),
        ('model = "rn26"\ndata = "tiny"\npreset = "slow"', "preset is 'slow'"),
        ('model = "rn26"\ndata = "tiny"\npreset = {a = 1}', "preset is {'a': 1}"),
        ('model = "rn26"\ndata = "tiny"\npreset = "fast"\nrecipe = "fast"', "unknown key 'recipe'"),
        ("model = rn26", "is not TOML"),
        (f"{'a.' * 50_000}b = 1", "100,005 bytes, more than the 16,384 that are read"),
        (f"model = {'[' * 5000}{']' * 5000}", "is not TOML"),
        ('model = "rn26"\ndata = "tiny"\nseeds = 1000000000', "it has 1,000,000,000 runs; the most are 10,000"),
        (f'model = "rn26"\ndata = "tiny"\nseeds = {2**70}', f"it has {2**70:,} runs; the most are 10,000"),
        (f'model = "rn26"\ndata = "tiny"\nseed = {"9" * 5000}', "is not TOML"),
        (f'model = "rn26"\ndata = "tiny"\nseeds = 0x{"f" * 5000}', "mine.toml: Exceeds the limit"),
        (f'model = "rn26"\ndata = "tiny"\nlr = {"9" * 400}', "mine.toml: int too large to convert to float"),
        ('model = "rn26"\ndata = "tiny"\nepochs = 1000000000000', "'epochs' is 1000000000000; it must be from 1 to"),
    ],
)
def test_a_mistake_names_the_file_and_the_way_out(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TembedError) as caught:
        load_grid(written(tmp_path, text))
    assert said in str(caught.value)
    assert str(tmp_path / "mine.toml") in str(caught.value)


def test_an_unknown_grid_suggests_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="did you mean 'table1'"):
        load_grid("tabel1")
    with pytest.raises(TembedError, match=r"nothing\.toml cannot be read as a grid \(No such file"):
        load_grid(str(tmp_path / "nothing.toml"))


def test_changing_one_setting_changes_only_the_names_of_its_runs() -> None:
    before = {run_name(recipe) for recipe in load_grid("table1").recipes}
    more = {run_name(recipe) for recipe in load_grid("table1", {"seeds": 4}).recipes}
    assert len(before) == 90
    assert before < more
    assert len(more) == 120
    assert not before & {run_name(recipe) for recipe in load_grid("table1", {"epochs": 9}).recipes}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{a = 0.5, b = 1}", [(("a", 0.5), ("b", 1.0))]),
        ("[{a = 1}, {a = 2.5}]", [(("a", 1.0),), (("a", 2.5),)]),
    ],
)
def test_constants_are_a_table_or_a_list_of_tables(
    value: str, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recipe, "complete", lambda recipe: recipe)  # no maximizer of the package has such constants
    recipes = load_grid(written(tmp_path, f'model = "rn26"\ndata = "tiny"\nconstants = {value}')).recipes
    assert [recipe.constants for recipe in recipes] == expected
    assert all(type(number) is float for recipe in recipes for _, number in recipe.constants)


def store_recipe(folder: Path, recipe: Recipe) -> None:
    folder.mkdir()
    write_json(folder / "recipe.json", recipe.to_json())


def test_a_run_is_found_by_its_recipe_whatever_its_folder_is_called(tmp_path: Path) -> None:
    recipe, other = (Recipe.fast("rn26", "tiny", seed=seed).complete() for seed in (0, 1))
    store_recipe(tmp_path / "by-hand", recipe)
    assert [run.name for run in locate_runs((recipe, other), tmp_path)] == ["by-hand", run_name(other)]


def test_a_new_run_never_gets_the_folder_of_another_recipe(tmp_path: Path) -> None:
    """Older versions of `tembed train` left different recipes in folders with the same names."""
    recipe, other = (Recipe.fast("rn26", "tiny", epochs=epochs).complete() for epochs in (8, 2))
    store_recipe(tmp_path / run_name(recipe), other)
    assert [run.name for run in locate_runs((recipe, other), tmp_path)] == [f"{run_name(recipe)}-2", run_name(recipe)]


@pytest.mark.parametrize(
    ("data", "side", "classes"), [("cifar10", 32, 10), ("cifar100", 32, 100), ("mini-imagenet", 84, 100)]
)
def test_the_size_of_a_dataset_that_is_not_stored_comes_from_its_record(
    data: str, side: int, classes: int, tmp_path: Path
) -> None:
    """The subsets are those of the paper's split (§4): 65, 15 and 20 % of 60,000 images."""
    size = data_size(Recipe.paper("rn26", data), str(tmp_path))
    assert size == DataSize(side, classes, train=39_000, val=9_000, test=12_000)


def test_a_training_step_takes_longer_than_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is the fastest of several; steps this small are measured as whole batches."""
    monkeypatch.setattr(preview, "MEASURED_SECONDS", 0.3)
    monkeypatch.setattr(preview, "EVAL_BATCH", 16)
    recipe = Recipe("rn20", "dots", epochs=1, batch_size=4).complete()
    speed = preview.measure_speed(recipe, DataSize(side=8, classes=10, train=30, val=10, test=10))
    assert speed.train > speed.evaluate > 0
