"""A report shows measured numbers beside the paper's, never mixes different settings, and names what is missing."""

import json
import re
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.palette import AUX, BASELINE, BLOCK, BLOCK_SHADES
from tembed.lab.grid.cells import make_cells, network_fields, network_title
from tembed.lab.grid.records import read_runs
from tembed.lab.report.ablations import network_colours
from tembed.lab.report.grid_report import write_grid_report
from tembed.lab.training.evaluation import pack_correct
from tembed.lab.training.recipe import Recipe
from tembed.paper import ACCURACY

pytestmark = pytest.mark.usefixtures("use_worlds")

Put = Callable[..., Path]


RESULTS = Path(__file__).parents[3] / "results"


def report(put: Put, tmp_path: Path) -> str:
    write_grid_report([tmp_path / "summaries"], tmp_path / "out")
    return (tmp_path / "out" / "report.md").read_text("utf-8")


def test_a_single_epoch_is_not_a_plural(put: Put, tmp_path: Path) -> None:
    put(Recipe.paper("rn26", "cifar10", epochs=1), 40.0)
    text = " ".join(report(put, tmp_path).split())
    assert "Paper preset, 1 epoch, 65/15/20 split 0" in text
    assert "1 epoch is few" in text
    assert "1 finished run in 1 cell;" in text
    assert "1 epochs" not in text


def test_a_cell_is_mean_spread_n_epochs_paper_and_difference(put: Put, tmp_path: Path) -> None:
    values = (88.1, 88.9, 89.7)
    for seed, value in enumerate(values):
        put(Recipe.paper("rn26", "cifar10", seed=seed), value)
    text = report(put, tmp_path)
    mean, std = statistics.mean(values), statistics.stdev(values)
    assert f"| RN26 | {mean:.2f} ± {std:.2f} | 89.52 | {mean - 89.52:+.2f} | 3 | 200 |" in text
    assert "Missing (the paper's number): RN26-aux. (90.57), RN26-Ours (91.06), RN38 (90.78)," in text
    assert "Missing altogether: CIFAR-100, Mini-ImageNet." in text


def test_early_stopping_shows_the_epochs_that_were_trained(put: Put, tmp_path: Path) -> None:
    settings = {"patience": 15, "schedule": "plateau", "conventions": "keras"}
    for seed, epochs in enumerate((66, 71)):
        put(Recipe.paper("rn26", "cifar10", seed=seed, **settings), 90.0, epochs=epochs)
    put(Recipe.paper("rn26-embed", "cifar10", **settings), 91.0, epochs=50)
    text = " ".join(report(put, tmp_path).split())
    assert "Paper preset, at most 200 epochs," in text
    assert "| RN26 | 90.00 ± 0.00 | 89.52 | +0.48 | 2 | 66 to 71 |" in text
    assert "| RN26-Ours | 91.00 | 91.06 | -0.06 | 1 | 50 |" in text


def test_a_training_that_fills_the_papers_gaps_is_not_called_another_training(put: Put, tmp_path: Path) -> None:
    put(Recipe.paper("rn26", "cifar10", schedule="plateau", conventions="keras"), 90.0)
    put(Recipe.paper("rn26", "cifar100", schedule="plateau", lr=2e-3), 60.0)
    text = " ".join(report(put, tmp_path).split())
    ours, other = text.partition("schedule plateau ")[2].partition("schedule plateau ")[::2]
    assert "the paper does not state conventions and schedule, so these are guesses" in ours
    assert "not the paper's training" not in ours
    assert "this is not the paper's training" in other


def test_runs_that_differ_in_more_than_the_seed_are_in_different_cells(put: Put) -> None:
    same = [put(Recipe.paper("rn26", "cifar10", seed=seed), 80.0 + seed) for seed in (0, 1)]
    for change in ({"epochs": 3}, {"split": "official"}, {"split_seed": 1}, {"lr": 2e-3}, {"train_images": 1000}):
        put(Recipe.paper("rn26", "cifar10", **change), 70.0)
    put(Recipe.fast("rn26", "cifar10"), 75.0)
    put(Recipe.paper("rn26", "cifar10", seed=2), 60.0, sha256="b" * 64)
    put(Recipe.paper("rn26", "cifar10", seed=3), 60.0, test_images=200)
    cells = make_cells(read_runs([same[0].parent]).records)
    assert sorted(cell.sample.n for cell in cells) == [1] * 8 + [2]
    assert next(cell for cell in cells if cell.sample.n == 2).seeds == [0, 1]


def test_a_repeated_seed_is_not_another_sample(put: Put, tmp_path: Path) -> None:
    put(Recipe.paper("rn26", "cifar10"), 80.0)
    put(Recipe.paper("rn26", "cifar10"), 80.0)
    put(Recipe.paper("rn26", "cifar10"), 81.0)
    found = read_runs([tmp_path / "summaries"])
    assert len(found.records) == len(found.duplicates) == len(found.excluded) == 1
    assert "another result (81.00, not 80.00 %)" in found.excluded[0]
    put(Recipe.paper("rn26", "cifar10"), 82.0, test_images=200)  # a test of other images
    assert [record.accuracy for record in read_runs([tmp_path / "summaries"]).records] == pytest.approx([80, 82])


def test_single_seeds_are_marked(tmp_path: Path) -> None:
    write_grid_report([RESULTS / f"{model}-cifar10-fast-0.json" for model in ("rn26", "rn26-embed")], tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "| RN26 | 88.76 | 89.52 | -0.76 | 1 | 8 |" in text
    assert "some cells have one seed only" in text
    assert "this is not the paper's training" in text
    assert re.search(r"\| RN26-Ours - RN26 \| CIFAR-10 \| -0\.16 \[-0\.96, \+0\.64\] \| 1 and 1 \| needs two", text)


def test_a_variant_of_the_block_is_compared_with_the_baseline_trained_in_the_same_way(put: Put, tmp_path: Path) -> None:
    put(Recipe.fast("rn26", "cifar10", averaging=0.2), 80.0)
    put(Recipe.fast("rn26", "cifar10"), 60.0)  # another regime
    put(Recipe.fast("rn26", "cifar10", averaging=0.2), 50.0, sha256="b" * 64)  # another copy
    put(Recipe.fast("rn26-embed", "cifar10", averaging=0.2, norm_shortcut=True), 83.0)
    put(Recipe.fast("rn26-embed", "cifar10", averaging=0.2), 81.0)
    text = report(put, tmp_path)
    pairs = re.findall(r"\| (RN26-Ours.* - .*? \| .*? \| .*?) \[", text)
    assert pairs == [
        "RN26-Ours - RN26 | CIFAR-10 | +1.00",
        "RN26-Ours, with norm shortcut - RN26 | CIFAR-10 | +3.00",
    ]
    assert "| RN26-Ours | 81.00 | 91.06 |" in text  # Table 1 is about the paper's own network
    assert "| RN26-Ours | 83.00 |" not in text


def full(put: Put) -> None:
    for (model, data), value in ACCURACY.items():
        if (model, data) == ("dn100", "cifar100"):
            continue
        for seed in range(2):
            put(Recipe.paper(model, data, seed=seed, epochs=4), value - 3 + 0.2 * seed)
    for weight in (0.0, 0.25, 0.5, 1.0):
        put(Recipe.fast("rn26-embed", "cifar10", weight=weight), 84 - (weight - 0.5) ** 2)
    for maximizer in ("bn-relu", "entropic", "perturbed"):
        for batch in (8, 32):
            put(Recipe.paper("rn20", "cifar10", maximizer=maximizer, batch_size=batch, epochs=2), 86.0 + batch / 32)


@pytest.mark.slow
def test_the_figures_show_the_measured_cells(put: Put, tmp_path: Path) -> None:
    full(put)
    text = report(put, tmp_path)
    assert "Highest mean: lambda 0.5 (n = 1)." in text
    assert "| perturbed-sampled | missing | missing |" in text
    assert "| entropic | 86.25 (n = 1) | 87.00 (n = 1) |" in text
    assert "Missing (the paper's number): DN100 (71.65)." in text
    links = re.findall(r"\(figures/([\w-]+)\.svg\)", text)
    assert {link.partition("-")[0] for link in links} == {"lambda", "maximizers", "depth", "curves"}
    for link in links:
        assert (tmp_path / "out" / "figures" / f"{link}.svg").read_text().startswith("<svg")
    tested = re.search(
        r"\| RN26-Ours - RN26 \| CIFAR-10 \| \+1\.54 \[.*?\] \| 2 and 2 \| (0\.\d+) \| (0\.\d+|1\.000) \|", text
    )
    assert tested is not None
    assert float(tested[1]) < 0.05
    assert float(tested[2]) > float(tested[1])


def test_a_depth_chart_needs_two_measured_depths(put: Put, tmp_path: Path) -> None:
    for model in ("rn26", "rn26-embed"):
        put(Recipe.paper(model, "cifar10", epochs=2), 80.0)
    text = report(put, tmp_path)
    assert "figures/depth" not in text
    assert "Depth: two or three units" not in text
    assert "- depth (§4.1): no network was trained at both depths in the same way" in text
    put(Recipe.paper("rn38", "cifar10", epochs=2), 81.0)
    text = report(put, tmp_path)
    assert "figures/depth-1.svg" in text
    assert "Missing: RN38-Ours." in text


def test_curves_show_training_accuracy_losses_and_the_share_where_they_were_recorded(put: Put, tmp_path: Path) -> None:
    metrics = {"accuracy": 0.5, "head": 1.5, "val_head": 1.6, "patches": 2.0, "val_patches": 2.1, "variance_share": 0.1}
    nothing = dict.fromkeys(("patches", "val_patches", "variance_share"))
    put(Recipe.paper("rn26", "cifar10", epochs=2), 80.0, metrics=metrics | nothing)
    put(Recipe.paper("rn26-embed", "cifar10", epochs=2), 81.0, metrics=metrics)
    put(Recipe.paper("rn26", "cifar100", epochs=3), 60.0)  # by an older version
    text = report(put, tmp_path)
    links = set(re.findall(r"\(figures/([\w-]+)\.svg\)", text))
    assert {"curves-1", "head-loss-1", "patch-loss-1", "share-1", "curves-2"} <= links
    assert not {"head-loss-2", "patch-loss-2", "share-2"} & links
    assert text.count("Thick: validation images. Thin: training images.") == 3
    patches = (tmp_path / "out" / "figures" / "patch-loss-1.svg").read_text()
    assert ("RN26-Ours (n = 1)" in patches, "RN26 (n = 1)" in patches) == (True, False)
    assert "| RN26-Ours | 1 | 81.00 | - | 10.0 |" in text  # best, too few epochs for a mean, share


def test_the_last_ten_epochs_are_averaged_over_epochs_and_seeds(put: Put, tmp_path: Path) -> None:
    for seed, accuracy in enumerate((50.0, 70.0)):
        put(Recipe.paper("rn26", "cifar10", epochs=20, seed=seed), accuracy)
    text = report(put, tmp_path)
    assert "mean of the last 10 epochs" in text
    assert f"| RN26 | 2 | 60.00 | {60 * sum(range(11, 21)) / 200:.2f} | - |" in text


def test_a_curve_is_the_mean_over_the_seeds_and_needs_all_of_them(put: Put) -> None:
    put(Recipe.paper("rn26", "cifar10", epochs=2), 80.0, metrics={"head": 1.0, "patches": None})
    path = put(Recipe.paper("rn26", "cifar10", epochs=2, seed=1), 60.0, metrics={"head": 2.0})
    (cell,) = make_cells(read_runs([path.parent]).records)
    assert cell.curve("val_accuracy", 100) == ((1.0, 35.0, 0.0), (2.0, 70.0, 0.0))
    assert cell.curve("head") == ((1.0, 1.5, 0.0), (2.0, 1.5, 0.0))
    assert cell.curve("patches") == cell.curve("lr") == ()


def test_the_fields_of_the_network_and_its_loss_are_derived_from_the_registered_networks() -> None:
    block = {"softmax_on_bn", "smooth_shortcut", "norm_shortcut"}
    assert set(network_fields()) == {"weight", "maximizer", "mu", "eta", "eps", "constants", *block}


def test_the_title_of_a_network_names_what_differs_from_table_1() -> None:
    assert network_title(Recipe.fast("rn26-embed", "cifar10").complete()) == "RN26-Ours"
    assert network_title(Recipe.fast("rn26-embed", "cifar10", weight=0.25).complete()) == "RN26-Ours, lambda 0.25"
    plain = Recipe.fast("rn26-embed", "cifar10", norm_shortcut=True, smooth_shortcut=False).complete()
    assert network_title(plain) == "RN26-Ours, without smooth shortcut, with norm shortcut"
    swapped = Recipe.fast("rn26", "cifar10", maximizer="entropic", mu=3.0).complete()
    assert network_title(swapped) == "RN26, maximizer entropic, mu 3.0, eta 17.0, eps 1.0"


def test_a_network_has_one_colour_and_different_networks_of_a_family_have_different_ones(put: Put) -> None:
    full(put)
    colours = network_colours(make_cells(read_runs([put(Recipe.fast("rn26", "cifar10"), 80.0).parent]).records))
    assert colours["RN26"] == colours["DN100"] == BASELINE
    assert colours["RN26-Ours"] == colours["DN100-Ours"] == BLOCK
    assert len({colours[name] for name in ("DN100", "DN100-Ours", "DN100-Ours-C")}) == 3
    assert len({colours[name] for name in ("RN26", "RN26-Ours", "RN26-aux.")}) == 3
    weights = [colour for name, colour in colours.items() if name.startswith("RN26-Ours, lambda")]
    assert len(set(weights)) == len(weights) == 3
    assert not {BASELINE, BLOCK} & set(weights)
    assert set(weights) <= set(BLOCK_SHADES)
    assert colours["DN100-Ours-C"] in BLOCK_SHADES
    assert colours["RN26-aux."] == AUX


def test_damaged_runs_are_named_and_the_rest_is_reported(
    put: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(Recipe.paper("rn26", "cifar10"), 80.0)
    folder = tmp_path / "summaries"
    (folder / "other.json").write_text('{"about": "no run"}')  # ignored
    (folder / "torn.json").write_text('{"recipe": ')
    broken, begun = folder / "broken", folder / "begun"
    for path in (broken, begun):
        path.mkdir()
    (broken / "recipe.json").write_text("{")
    (begun / "recipe.json").write_text(json.dumps(Recipe.paper("rn26", "cifar10", seed=1).complete().to_json()))
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 finished run, 1 unfinished: ")
    assert len(said) == 3
    assert all(line.startswith("excluded: ") for line in said[1:])
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "begun: 0 of 200 epochs" in text
    assert "torn.json" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e308", "9" * 400, "-0.1", "[]", "null"])
@pytest.mark.parametrize("place", ["test_accuracy", "total_seconds", "curve"])
def test_a_number_that_makes_no_sense_excludes_its_run_only(put: Put, tmp_path: Path, number: str, place: str) -> None:
    put(Recipe.paper("rn26", "cifar10", epochs=2), 80.0)
    path = put(Recipe.paper("rn26", "cifar10", epochs=2, seed=1), 81.0)
    value = json.loads(path.read_text())
    if place == "curve":
        value["curve"][0]["val_accuracy"] = "HERE"
    else:
        value["result"][place] = "HERE"
    path.write_text(json.dumps(value).replace('"HERE"', number))
    found = read_runs([tmp_path / "summaries"])
    good = place == "total_seconds" and number == "1e308"
    assert [record.accuracy for record in found.records] == ([80.0, 81.0] if good else [80.0])
    assert len(found.excluded) == (0 if good else 1)
    assert "| RN26 | " in report(put, tmp_path)


def test_no_runs_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match=r"no runs in .*: train some"):
        read_runs([tmp_path])
    with pytest.raises(TembedError, match="does not exist"):
        read_runs([tmp_path / "nothing"])


def test_an_earlier_report_stays_if_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a run")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.md").write_text("earlier")
    with pytest.raises(TembedError, match=r"no run could be read.*notes.txt"):
        write_grid_report([tmp_path / "notes.txt"], tmp_path / "out")
    assert (tmp_path / "out" / "report.md").read_text() == "earlier"


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_a_phone_and_needs_no_other_file(put: Put, tmp_path: Path, browser: str, width: int) -> None:
    full(put)
    report(put, tmp_path)
    page = tmp_path / "out" / "report.html"
    text = page.read_text("utf-8")
    assert not re.search(r"(src|href)\s*=\s*.(?!#)|url\((?!#)|@import", text), "the page refers to something outside"
    # The page measures itself inside a frame of the tested width, because a window cannot be as narrow as a phone.
    measuring = (
        f"<iframe id=f width={width} height=900 src=report.html></iframe><script>"
        "f.onload = () => { const d = f.contentDocument; const wide = d.documentElement.scrollWidth;"
        "const cut = [...d.querySelectorAll('svg')].filter(s => { const b = s.getBoundingClientRect();"
        "return [...s.querySelectorAll('text')].some(t => { const r = t.getBoundingClientRect();"
        "return r.left < b.left - 1 || r.right > b.right + 1 || r.bottom > b.bottom + 1 }) }).length;"
        "const small = Math.min(...[...d.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height));"
        "document.title = 'measured'; document.body.textContent ="
        "JSON.stringify({ wide, cut, small, figures: d.querySelectorAll('svg').length,"
        " missing: d.querySelectorAll('td.missing').length, heading: d.querySelector('h1').textContent }) }</script>"
    )
    (page.parent / "measure.html").write_text(measuring)
    line = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    line += ["--virtual-time-budget=10000", f"--user-data-dir={tmp_path / 'profile'}"]
    line.append((page.parent / "measure.html").as_uri())
    dumped = subprocess.run(line, capture_output=True, text=True, timeout=120).stdout
    measured = json.loads(re.search(r"<body>(\{.*\})", dumped)[1])  # type: ignore[index]
    assert measured["wide"] <= width
    assert measured["cut"] == 0
    assert measured["small"] >= 9
    assert measured["figures"] == len(list((tmp_path / "out" / "figures").iterdir()))
    assert measured["missing"] > 0
    assert "measured beside the paper" in measured["heading"]


@pytest.mark.parametrize(
    ("right", "listed", "good"),
    [(10, 10, True), (10, 11, False), (10, 10_000, False), (10, -1, False)],
    ids=["good", "other", "longer", "damaged"],
)
def test_the_listed_images_must_make_the_accuracy(right: int, listed: int, good: bool, put: Put) -> None:
    path = put(Recipe("rn26", "cifar10"), 50.0, test_images=20)
    value = json.loads(path.read_text())
    value["result"]["test"]["correct"] = "?" if listed < 0 else pack_correct(np.arange(max(20, listed)) < listed)
    path.write_text(json.dumps(value))
    found = read_runs([path.parent])
    assert len(found.records) == int(good)
    assert len(found.excluded) == int(not good)
    if good:
        assert make_cells(found.records)[0].sample.correct.tolist() == [1.0] * right + [0.0] * (20 - right)
