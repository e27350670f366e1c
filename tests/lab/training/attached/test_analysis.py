"""The analysis, the page and the reports of attached networks name the layer, not a stage of the paper's networks."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.analysis.analyzing import Analysis, analyze
from tembed.lab.analysis.compared_runs import sort_runs
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.loading import load
from tembed.lab.page.content import page_content
from tembed.lab.report.analysis_report import pictures
from tembed.lab.report.document import to_markdown
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.trained.weights_file import load as load_network

pytestmark = pytest.mark.usefixtures("quick_analysis")


def analysis_of(name: str, out: Path, *, freeze: bool, baseline: bool) -> Analysis:
    preset = "frozen" if freeze else "fast"
    run = train(Recipe.from_preset(preset, name, "dots", epochs=1, batch_size=13), out / "run")
    other = None
    if baseline:
        recipe = Recipe.from_preset(preset, f"{name.removesuffix(':aux')}:none", "dots", epochs=1, batch_size=13)
        other = train(recipe, out / "base").folder
    return analyze(run.folder, baseline=other, images_per_class=2)


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [False, True])
def test_figures_and_page_name_the_layer(named: str, tmp_path: Path, freeze: bool) -> None:
    found = analysis_of(named, tmp_path, freeze=freeze, baseline=True)
    drawn = [axis.get_title() for axis in found.geometry().axes]
    assert drawn == ["baseline (base), behind 4", "block input (output of 4)", "block output (behind 4)"]
    titles = {layout["name"]: layout["title"] for layout in page_content(found).about["layouts"]}
    assert titles["block input"] == "block input (output of 4)"
    assert titles["predictions"] == "Predictions"
    assert "stage" not in to_markdown(pictures(found, side=600))


@pytest.mark.parametrize("freeze", [False, True])
def test_the_untrained_control_has_class_vectors_and_statistics_of_the_data(
    named: str, tmp_path: Path, freeze: bool
) -> None:
    """Training starts from zero class vectors and keeps a frozen network in evaluation mode; a control must not."""
    recipe = Recipe.from_preset("frozen" if freeze else "fast", named, "dots", epochs=1, batch_size=13)
    network = load_network(train(recipe, tmp_path / "run").folder)
    blank = untrained(network, load("dots").train, 3)
    assert blank.block.values.weight.std() > 0.1
    assert not blank.training
    norms = [module for module in blank.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 2
    for norm in norms:
        assert norm.num_batches_tracked > 0
        assert not torch.allclose(norm.running_var, torch.ones_like(norm.running_var))
        assert not norm.training


def test_further_runs_are_sorted_by_their_blocks(named: str, tmp_path: Path) -> None:
    """``:aux`` and ``:none`` of the same layer are deep supervision and the baseline; another layer is neither."""
    layer = named.removesuffix("@4")
    runs = {
        name: train(Recipe.fast(name, "dots", epochs=1, batch_size=13, seed=seed), tmp_path / str(seed)).folder
        for seed, name in enumerate((named, f"{named}:aux", f"{named}:none", f"{layer}@2"))
    }
    first, aux, none, other = runs.values()
    found = sort_runs(first, load_network(first), None, [aux, none])
    assert [source for source, _ in found["baseline"]] == [str(none)]
    assert [source for source, _ in found["-aux"]] == [str(aux)]
    with pytest.raises(TembedError, match=f"seeds of {named}, {named}:none, {named}:aux$"):
        sort_runs(first, load_network(first), None, [other])


def test_an_evaluation_names_no_stage(named: str, tmp_path: Path) -> None:
    train(Recipe.fast(named, "dots", epochs=1, batch_size=13), tmp_path / "run")
    assert main(["evaluate", "run"]) == 0
    (report,) = tmp_path.rglob("report.md")
    assert "what follows the block" in report.read_text()
    assert "stage" not in report.read_text()
