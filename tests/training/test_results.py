"""A finished run in one small file, and the results that the repository ships."""

import json
from pathlib import Path

import pytest

from tembed.errors import TembedError
from tembed.training import Recipe, Run, load_trained, train
from tembed.training.run import save_summary
from tembed.training.weights import shipped

RESULTS = Path(__file__).parents[2] / "results"


def test_a_summary_holds_all_but_the_weights(tmp_path: Path, worlds: Path) -> None:
    run = train(Recipe("rn26", "dots", epochs=1, batch_size=30), tmp_path / "run", root=worlds)
    path = save_summary(run, tmp_path / "results")
    assert path.name == "rn26-dots-own-0.json"
    saved = json.loads(path.read_text())
    assert saved["recipe"]["epochs"] == 1
    assert saved["result"] == run.result
    assert saved["curve"] == run.metrics
    assert saved["wall_seconds"] > 0
    assert {"commit", "processor", "torch", "threads"} <= set(saved["environment"])
    assert saved["data_sha256"] == json.loads(run.environment_path.read_text())["data_sha256"]


def test_a_run_that_is_not_finished_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="not finished"):
        save_summary(Run(tmp_path), tmp_path)


@pytest.mark.parametrize("name", shipped())
def test_shipped_weights_are_those_of_a_recorded_run(name: str) -> None:
    trained = load_trained(name)
    recipe = trained.recipe
    record = json.loads((RESULTS / f"{recipe.model}-{recipe.data}-{recipe.preset}-{recipe.seed}.json").read_text())
    assert shipped()[name].stat().st_size < 3_000_000
    assert f"{recipe.model}/{recipe.data}" == name
    assert trained.about["epoch"] == record["result"]["best_epoch"]
    assert trained.about["val_accuracy"] == record["result"]["val_accuracy"]
    assert trained.about["data_sha256"] == record["data_sha256"]
    assert Recipe.from_plain({k: v for k, v in record["recipe"].items() if k != "preset"}) == recipe
