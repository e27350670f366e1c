"""Further runs are sorted by their recipes, and refused if they cannot be compared."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.datasets import store_world
from support.features import made_description

from tembed.common.errors import TembedError
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.analysis.compared_runs import baseline_of, compared_models, seed_counts, sort_runs
from tembed.lab.analysis.untrained import untrained
from tembed.lab.claims import measure_claims
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import Recipe, recipe_of
from tembed.models import registry
from tembed.models.registry import create_model, register_model
from tembed.trained.weights_file import load as load_network
from tembed.trained.weights_file import save_weights


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_world(root, "tiny", 200, 16)
    return root


@pytest.fixture(scope="module")
def runs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Weights files of several untrained networks and seeds, with BN statistics from data; one has another recipe."""
    folder, splits = tmp_path_factory.mktemp("runs"), load("tiny", root=root)
    classes = splits.test.classes
    found = {}
    for model, seed, lr in (
        *(("rn26-embed", seed, 0.1) for seed in range(3)), *(("rn26", seed, 0.1) for seed in range(3)),
        ("rn26-aux", 0, 0.1), ("rn26-aux", 1, 0.1), ("rn26-1x1", 0, 0.1), ("rn26-embed", 7, 0.2), ("rn38", 0, 0.1),
    ):  # fmt: skip
        recipe = Recipe.fast(model, "tiny", epochs=1, seed=seed, lr=lr).complete()
        network = create_model(model, len(classes), 16, **recipe.model_options())
        description = made_description(recipe, classes, 16)
        path = folder / f"{model}-{seed}.safetensors"
        save_weights(path, network.state_dict(), description)
        blank = untrained(load_network(path), splits.train, 100 + seed)
        save_weights(path, blank.state_dict(), description)
        found[f"{model}-{seed}"] = path
    return found


def test_runs_are_sorted_into_seeds_of_four_kinds(runs: dict[str, Path]) -> None:
    source = runs["rn26-embed-0"]
    names = ("rn26-embed-1", "rn26-2", "rn26-aux-0", "rn26-embed-2", "rn26-1", "rn26-1x1-0")
    found = sort_runs(source, load_network(source), runs["rn26-0"], [runs[name] for name in names])
    assert [[Path(source).stem for source, _ in kind] for kind in found.values()] == [
        ["rn26-embed-0", "rn26-embed-1", "rn26-embed-2"],
        ["rn26-0", "rn26-2", "rn26-1"],
        ["rn26-aux-0"],
        ["rn26-1x1-0"],
    ]
    assert seed_counts(found) == "3 of the run, 3 of the baseline, 1 -aux, 1 -1x1"
    alone = sort_runs(source, load_network(source), None, [runs["rn26-1"]])
    assert [Path(source).stem for source, _ in alone["baseline"]] == ["rn26-1"]


def test_seeds_of_an_analysed_aux_network_are_seeds_of_the_run(runs: dict[str, Path]) -> None:
    """Its name is that of the kind -aux as well."""
    source = runs["rn26-aux-0"]
    found = sort_runs(source, load_network(source), runs["rn26-0"], [runs["rn26-aux-1"]])
    assert [Path(source).stem for source, _ in found["run"]] == ["rn26-aux-0", "rn26-aux-1"]
    assert found["-aux"] == []


@pytest.mark.parametrize(
    ("model", "baseline"),
    [
        ("rn26-embed", "rn26"),
        ("dn100-embed-cat", "dn100"),
        ("my-net-embed", "my-net"),
        ("my-net-embed-wide", "my-net"),
        ("my-netembed", "my"),
        ("my-embed", "my"),
        ("lonely-embed", "lonely"),
    ],
)
def test_the_baseline_is_the_longest_registered_name_without_a_block(
    model: str, baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``my-net-embed`` has a block, so that ``my-net-embed-wide`` does not extend it."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    for name, block in (("my", None), ("my-net", None), ("my-net-embed", "embed")):
        register_model(name, lambda *_: None, block=block)  # type: ignore[arg-type, return-value]
    assert baseline_of(model) == baseline


def test_a_registered_network_is_compared_with_its_own_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    for name, block in (("my-net", None), ("my-net-embed", "embed")):
        register_model(name, lambda *_: None, block=block)  # type: ignore[arg-type, return-value]
    assert compared_models("my-net-embed") == {
        "run": "my-net-embed", "baseline": "my-net", "-aux": "my-net-aux", "-1x1": "my-net-1x1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rn26-embed-0", "has the same recipe and seed as"),
        ("rn26-embed-7", r"differ in more than the seed \(lr: 0.1, not 0.2\): compare seeds of one recipe"),
        ("rn38-0", "a run of rn38: it can name seeds of rn26-embed, rn26, rn26-aux, rn26-1x1"),
    ],
)
def test_a_run_that_is_no_further_seed_is_refused(runs: dict[str, Path], name: str, message: str) -> None:
    source = runs["rn26-embed-0"]
    with pytest.raises(TembedError, match=message):
        sort_runs(source, load_network(source), runs["rn26-0"], [runs[name]])


def test_another_recipe_with_the_same_seed_is_told_by_its_recipe(runs: dict[str, Path], tmp_path: Path) -> None:
    source = runs["rn26-embed-7"]
    recipe = replace(recipe_of(load_network(source)), lr=0.3)
    other = tmp_path / "other.safetensors"
    description = made_description(recipe, load_network(source).description.classes, 16)
    save_weights(other, load_network(source).state_dict(), description)
    with pytest.raises(TembedError, match=r"differ in more than the seed \(lr: 0.2, not 0.3\)"):
        sort_runs(source, load_network(source), None, [other])


@pytest.mark.slow
def test_untrained_networks_hold_no_claim_about_learning(
    runs: dict[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole path on real networks: three untrained seeds of each kind, beside their untrained controls."""
    monkeypatch.setattr("tembed.lab.claims.half_samples.RESAMPLES", 30)
    also = [runs[name] for name in ("rn26-embed-1", "rn26-embed-2", "rn26-1", "rn26-2", "rn26-aux-0", "rn26-1x1-0")]
    groups = {
        "vehicles": ["plane", "car", "truck", "ship", "train"],
        "animals": ["bird", "fish", "cat", "dog", "horse"],
    }
    found = analyze(runs["rn26-embed-0"], baseline=runs["rn26-0"], also=also, groups=groups, root=root)
    claims = {claim.name: claim for claim in measure_claims(found)}
    names = {control.name for control in claims["class purity"].shown}
    assert {"-aux", "-1x1", "baseline", "untrained network (5 seeds)", "random class vectors (5 draws)"} <= names
    assert "many untrained networks (20 seeds)" in {control.name for control in claims["entropy near zero"].shown}
    assert claims["separation by the class vectors"].method.why.startswith("n = 1")  # of -aux and -1x1
    assert claims["entropy near zero"].method.why.startswith("n = 3")
    assert [len(one) for one in found.units["-1x1"]] == [8], "claims about units can be compared with any kind"
    holding = {name for name, claim in claims.items() if "holds" in (claim.weights.verdict, claim.method.verdict)}
    assert holding <= {"entropy near zero"}, "short f' are uncertain in untrained networks, too; it is shown"
