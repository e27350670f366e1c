"""Vital signs of trained runs on all their test images, saved beside the run files.

    python benchmarks/vital_signs.py RUN [RUN ...] [--out results/vital] [--plugin variants]

Writes one JSON for each run: the recipe's name, the share of f', and the accuracy with every part of the block knocked
out. `tembed analyze` measures the same on at most 4,000 images.
"""

import argparse
import json
from pathlib import Path

import torch

from tembed.common.plugins import load_plugins
from tembed.images.pixels import normalised
from tembed.lab.analysis.knock_outs import measure_knock_outs
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.lab.training.run import run_name
from tembed.trained.weights_file import load as load_network

HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "vital")
    parser.add_argument("--plugin", action="append", default=[])
    given = parser.parse_args()
    load_plugins(given.plugin)
    for run in given.runs:
        network = load_network(run)
        recipe = recipe_of(network)
        test = load(recipe.data, recipe.split, recipe.split_seed).test
        order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
        test = test.subset(order)  # images are stored by class, and the other image is to be of another one
        images = normalised(test.pixels(), *network.description.normalisation)
        found = measure_knock_outs(network, images, test.labels)
        path = given.out / f"{run_name(recipe)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"run": run_name(recipe), "seed": recipe.seed} | found.to_json(), indent=1) + "\n")
        print(f"{path}\n  share {found.share}\n  {found.words()}", flush=True)


if __name__ == "__main__":
    main()
