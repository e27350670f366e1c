"""Every recipe has its own run name, and a finished run fits in one small file."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.lab.grid.grid_file import builtin_names, load_grid
from tembed.lab.training import environment as environment_module
from tembed.lab.training.environment import HARDWARE, changes, environment
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe, recipe_of
from tembed.lab.training.run import Run, run_name, save_summary
from tembed.trained.weights_file import load as load_network
from tembed.trained.weights_file import shipped

RESULTS = Path(__file__).parents[3] / "results"
RECIPE = Recipe.fast("rn26-embed", "cifar10").complete()


@pytest.mark.parametrize("grid", builtin_names())
def test_the_runs_of_a_grid_have_different_names(grid: str) -> None:
    recipes = load_grid(grid).recipes
    assert len({run_name(recipe) for recipe in recipes}) == len(recipes)


def test_every_field_of_a_recipe_changes_its_name() -> None:
    other = {
        "model": "rn38-embed",
        "data": "cifar100",
        "epochs": 9,
        "train_images": 100,
        "seed": 1,
        "split": "official",
        "split_seed": 1,
        "batch_size": 65,
        "lr": 0.03,
        "optimizer": "adamw",
        "betas": (0.9, 0.99),
        "weight_decay": 0.02,
        "schedule": "constant",
        "warmup": 0.1,
        "start_scale": 0.5,
        "crops": "resized",
        "flips": "alternating",
        "left_out": "cells",
        "averaging": 0.2,
        "label_smoothing": 0.1,
        "balanced": True,
        "weight": 0.25,
        "softmax_on_bn": False,
        "smooth_shortcut": False,
        "norm_shortcut": True,
        "conventions": "keras",
        "patience": 5,
        "maximizer": "entropic",
    }
    recipes = [RECIPE]
    for name, value in other.items():
        changed = {name: value} | ({"warmup": None} if name == "schedule" else {})
        recipes.append(dataclasses.replace(RECIPE, **changed))
    attached = dataclasses.replace(RECIPE, model="tembed:rn26@stage3", softmax_on_bn=None, smooth_shortcut=None)
    attached = dataclasses.replace(attached, start_scale=1.0, maximizer=None)
    starts = {"init": "random", "init_rate": 0.1, "image_size": 64, "freeze": True}
    recipes += [dataclasses.replace(attached, **{name: value}) for name, value in starts.items()]
    base = dataclasses.replace(RECIPE, maximizer="entropic")
    recipes += [dataclasses.replace(base, **{name: 1.5}) for name in ("mu", "eta", "eps")]
    untested = {field.name for field in dataclasses.fields(Recipe)} - {*other, *starts, "mu", "eta", "eps", "constants"}
    assert untested == set()
    assert len({run_name(recipe) for recipe in recipes}) == len(recipes)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe.fast("RN26-Ours", "cifar10", seed=3), "rn26-embed-cifar10-fast-3"),
        (Recipe.paper("dn100", "mini-imagenet"), "dn100-mini-imagenet-paper-0"),
        (Recipe.fast("rn26-embed", "cifar10", weight=0.5), "rn26-embed-cifar10-fast-0"),
        (Recipe.fast("rn26", "parts", epochs=3, train_images=500, seed=2), "rn26-parts-fast-3epochs-500images-2-"),
        (Recipe.paper("rn20", "cifar10", maximizer="entropic"), "rn20-cifar10-paper-entropic-0-"),
        (Recipe.paper("rn26-embed", "cifar10", weight=0.3), "rn26-embed-cifar10-paper-lambda0.3-0-"),
        (Recipe.paper("rn26", "cifar10", batch_size=8), "rn26-cifar10-own-batch8-0-"),
        (Recipe.paper("rn26", "cifar10", lr=0.1), "rn26-cifar10-own-0-"),
    ],
)
def test_a_name_says_what_is_unusual(recipe: Recipe, expected: str) -> None:
    name = run_name(recipe)
    digest = name.removeprefix(expected)
    assert digest != name
    assert len(digest) == (8 if expected.endswith("-") else 0)
    assert name == run_name(recipe.complete())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    recipe = Recipe("rn26", "dots", epochs=1, batch_size=30)
    return train(recipe, tmp_path_factory.mktemp("runs") / "run", root=worlds)


def test_a_summary_holds_everything_but_the_weights(run: Run, tmp_path: Path) -> None:
    path = save_summary(run, tmp_path / "results")
    assert path.name == f"{run_name(run.recipe)}.json"
    saved = json.loads(path.read_text())
    assert saved["recipe"]["epochs"] == 1
    assert saved["result"] == run.result
    assert saved["curve"] == run.metrics
    assert saved["wall_seconds"] > 0
    assert {"commit", "processor", "torch", "threads"} <= set(saved["environment"])
    assert saved["data_sha256"] == json.loads(run.environment_path.read_text())["data_sha256"]


@pytest.mark.parametrize("grid", ["lambda", "maximizers"])
def test_runs_save_writes_a_file_for_each_run_of_a_grid(
    grid: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recipes of the paper's grids, each in the folder of a finished run."""
    recipes = load_grid(grid).recipes
    for number, recipe in enumerate(recipes):
        copy_run(run, tmp_path / "runs" / str(number), recipe)
    assert main(["runs", str(tmp_path / "runs"), "--save", str(tmp_path / "saved")]) == 0
    saved = [json.loads(path.read_text())["recipe"] for path in (tmp_path / "saved").iterdir()]
    assert len(saved) == len(recipes) > 10
    assert {Recipe.from_json({k: v for k, v in s.items() if k != "preset"}) for s in saved} == set(recipes)


def test_a_second_run_of_a_recipe_never_overwrites_the_first(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        copy_run(run, tmp_path / "runs" / name, run.recipe)
    assert main(["runs", str(tmp_path / "runs"), "--save", str(tmp_path / "saved")]) == 1
    said = capsys.readouterr().out
    assert said.count("wrote ") == 1
    assert f"not saved: {tmp_path}/runs/b: it has the same recipe as {tmp_path}/runs/a" in said


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "environment.json", "recipe.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_not_a_regular_file_ends_no_command(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    """`tembed runs` and `tembed report` go on with the other runs."""
    for folder in ("bad", "good"):
        copy_run(run, tmp_path / "runs" / folder, run.recipe)
    path = tmp_path / "runs" / "bad" / name
    path.unlink()
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir}[kind](path)
    reads_all = name != "environment.json"
    assert main(["runs", str(tmp_path / "runs")]) == (1 if reads_all else 0)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 1
    said = capsys.readouterr().out
    assert f"{path} is missing or damaged" in said
    assert "it is not a regular file" in said
    assert "1 finished run, 0 unfinished" in said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("environment.json", '{"data_sha256": "0", "starts": [5]}', "its starts is [5]"),
        ("environment.json", '{"data_sha256": "0", "starts": []}', "its starts is []"),
        ("environment.json", '{"data_sha256": 5, "starts": [{}]}', "its data_sha256 is 5"),
        ("environment.json", "5", "it is 5"),
        ("result.json", '{"test_accuracy": 1.0}', "it has no "),
        ("result.json", "[]", "it is []"),
        ("metrics.jsonl", "5", "it is 5"),
        ("metrics.jsonl", '{"epoch": 1, "val_accuracy": 0.5, "loss": "x"}', "its loss is 'x'"),
        ("metrics.jsonl", '{"epoch": 1, "val_accuracy": NaN}', "NaN is not a finite number"),
        ("metrics.jsonl", '{"epoch": 1, "val_accuracy": 2}', "its val_accuracy is 2"),
        ("metrics.jsonl", '{"epoch": 1}', "it has no val_accuracy"),
    ],
)
def test_an_odd_record_is_named_and_ends_no_command(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str
) -> None:
    for folder in ("bad", "good"):
        copy_run(run, tmp_path / "runs" / folder, run.recipe)
    path = tmp_path / "runs" / "bad" / name
    path.write_text(text)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 1
    printed = capsys.readouterr().out
    assert "1 finished run, 0 unfinished" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("excluded: ")]
    assert str(path) in line
    assert said in line
    assert main(["runs", str(tmp_path / "runs"), "--save", str(tmp_path / "saved")]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"recipe": 5}, {"result": 5}, {"curve": 5}, {"curve": [5]}, {"data_sha256": None}])
def test_an_odd_summary_ends_no_report(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    good = save_summary(run, tmp_path / "saved")
    (tmp_path / "saved" / "odd.json").write_text(json.dumps(json.loads(good.read_text()) | change))
    assert main(["report", str(tmp_path / "saved"), "--out", str(tmp_path / "report")]) == 1
    printed = capsys.readouterr().out
    assert "1 finished run, 0 unfinished" in printed
    assert f"excluded: {tmp_path / 'saved' / 'odd.json'}: " in printed


def copy_run(run: Run, folder: Path, recipe: Recipe) -> None:
    """Copy the records of a run to a folder with another recipe."""
    folder.mkdir(parents=True)
    write_json(folder / "recipe.json", recipe.to_json())
    for path in (run.environment_path, run.metrics_path):
        (folder / path.name).write_bytes(path.read_bytes())
    assert run.result is not None
    write_json(folder / "result.json", run.result | {"epochs": recipe.epochs})


def test_an_incomplete_recipe_does_not_take_the_folder(tmp_path: Path) -> None:
    (tmp_path / "recipe.json.0123abcd.part").write_text("{")
    Run(tmp_path).assign(RECIPE)
    assert Run(tmp_path).recipe == RECIPE


def test_a_run_that_is_not_finished_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="not finished"):
        save_summary(Run(tmp_path), tmp_path)


@pytest.mark.parametrize("name", shipped())
def test_shipped_weights_are_those_of_a_recorded_run(name: str) -> None:
    network = load_network(name)
    recipe = recipe_of(network)
    record = json.loads((RESULTS / f"{run_name(recipe)}.json").read_text())
    assert shipped()[name].stat().st_size < 3_000_000
    assert f"{recipe.model}/{recipe.data}" == name
    assert network.description.epoch == record["result"]["best_epoch"]
    assert network.description.val_accuracy == record["result"]["val_accuracy"]
    assert network.description.data_sha256 == record["data_sha256"]
    assert Recipe.from_json({k: v for k, v in record["recipe"].items() if k != "preset"}) == recipe


@pytest.mark.parametrize(
    "path", [*RESULTS.glob("rn*.json"), *sorted(RESULTS.glob("recipes/rn*.json"))], ids=lambda path: path.stem
)
def test_recorded_recipes_of_older_versions_load(path: Path) -> None:
    record = json.loads(path.read_text())
    recipe = Recipe.from_json({k: v for k, v in record["recipe"].items() if k != "preset"})
    assert recipe.complete() == recipe


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ({"bn_relu": True, "perturbed": True}, "own"),
        ({"bn_relu": False, "perturbed": False}, "torch"),
        ({"bn_relu": True, "perturbed": False}, "own: bn_relu"),
        ({"bn_relu": False, "perturbed": True}, "own: perturbed"),
    ],
)
def test_the_environment_lists_the_kernels_that_work(
    available: dict[str, bool], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module.ops, "available", lambda: available)
    now = environment(HARDWARE)
    assert now["kernels"] == expected
    # Older versions recorded "own" if one of the kernels worked.
    assert changes(now | {"kernels": "own"}, now) == ([] if expected == "own" else [f"kernels: own, now {expected}"])
