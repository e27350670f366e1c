"""How much of a patch's score comes from inside a window, for each network of locality.toml.

    cd benchmarks; python locality.py RUN [RUN ...] [--out ../results/locality/fields]

Writes one JSON for each run, measured on 20 test images of each class (the same images for all), and leaves out those
that are there. Prints a table of all of them, with the mean over seeds.
"""

import argparse
import json
import statistics
from pathlib import Path

import variants  # noqa: F401 - registers the networks

from tembed.lab.analysis.effective_fields import effective_field, read_effective_field
from tembed.lab.analysis.sampling import sample
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.lab.training.run import run_name
from tembed.models.parameter_counts import count_parameters
from tembed.trained.weights_file import load as load_network

SHOWN = (8, 16, 24)
"""Sides of the windows in the table, in pixels."""


def measured(run: str) -> dict[str, object]:
    """The run's test accuracy and, with patch scores, its effective field."""
    network = load_network(run)
    recipe = recipe_of(network)
    accuracy = json.loads((Path(run) / "result.json").read_text())["test_accuracy"]
    about = {"run": run_name(recipe), "model": recipe.model, "seed": recipe.seed, "test_accuracy": accuracy}
    about["parameters"] = count_parameters(network)
    if network.block is None:
        return about
    images = sample(load(recipe.data, recipe.split, recipe.split_seed).test, 20)
    return about | {"effective_field": effective_field(network, images).to_json()}


def row(model: str, found: list[dict]) -> str:
    """Means over the seeds of one network."""
    accuracies = [100 * one["test_accuracy"] for one in found]
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(found) > 1 else ""
    cells = [model, f"{found[0]['parameters']:,}", f"{len(found)}", f"{statistics.fmean(accuracies):.2f}{spread}"]
    fields = [read_effective_field(one["effective_field"]) for one in found if "effective_field" in one]
    if fields:
        cells += ["x".join(map(str, dict.fromkeys(size))) for size in (fields[0].patch, fields[0].field or ("image",))]
        for side in SHOWN:
            shares = [one for field in fields for one in field.windows if one.size[0] == side]
            each = statistics.fmean(one.inside for one in shares) if shares else 1.0
            cells.append(f"{each:.0%}")
    return f"| {' | '.join(cells + ['-'] * (6 + len(SHOWN) - len(cells)))} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "locality" / "fields")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for run in given.runs:
        path = given.out / f"{Path(run).name}.json"
        if not path.exists():
            path.write_text(json.dumps(measured(run), indent=1) + "\n")
    found: dict[str, list[dict]] = {}
    for path in sorted(given.out.glob("*.json")):
        one = json.loads(path.read_text())
        found.setdefault(one["model"], []).append(one)
    windows = [f"inside {side} px" for side in SHOWN]
    header = ["network", "parameters", "n", "test accuracy, %", "patch, px", "field, px", *windows]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for model in sorted(found):
        print(row(model, found[model]))


if __name__ == "__main__":
    main()
