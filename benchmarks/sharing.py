"""Do patches of a shared part also match the other classes that have it? "0.5 plane + 0.5 bird = wing", by network.

    cd benchmarks; python sharing.py RUN [RUN ...] [--out ../results/locality/sharing.json]

A patch counts if two or more classes share the part that fills most of the 8 pixels around its centre, the smallest
window of the networks compared, so that all are asked about the same parts. Of the mass that such a patch does not give
to its image's class, the number is the share that goes to the others that have the part. By chance it would be
(|S| - 1) / (C - 1). Measured on 40 test images of each class (the same images for all).
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import variants  # noqa: F401 - registers the networks

from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.sampling import sample
from tembed.lab.claims.recognised_parts import classes_with_part, leading_part, part_pixels
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.trained.weights_file import load as load_network

SIDE = 8


def measured(run: str) -> dict[str, Any]:
    """The share of one run, by chance, and of which patches."""
    network = load_network(run)
    recipe = recipe_of(network)
    test = load(recipe.data, recipe.split, recipe.split_seed).test
    images = sample(test, 40)
    assert images.part_map is not None
    features = extract_features(network, images)
    (rows, columns), (height, width) = features.map_size, images.size
    window = SIDE * rows // height, SIDE * columns // width
    counts = part_pixels(images.part_map, len(images.parts), features.map_size, window)
    has = classes_with_part(test)[leading_part(counts)]
    size, own = has.sum(1), features.labels[features.image_of]
    counted = (size >= 2) & (size < has.shape[1])
    points = np.arange(len(has))
    has[points, own] = False
    softmax = features.required("softmax")
    off = (1 - softmax[points, own])[counted].sum()
    found = {
        "model": recipe.model,
        "seed": recipe.seed,
        "share": float((softmax * has).sum(1)[counted].sum() / off),
        "by_chance": float(np.mean((size[counted] - 1) / (has.shape[1] - 1))),
        "mass_off_the_true_class": float(off / counted.sum()),
        "patches": int(counted.sum()),
    }
    return {"run": Path(run).name} | found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "locality" / "sharing.json")
    given = parser.parse_args()
    found = [measured(run) for run in given.runs]
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print("| network | n | share on the others that have the part | by chance | mass off the true class |")
    print("|---|---|---|---|---|")
    for model in sorted({one["model"] for one in found}):
        rows = [one for one in found if one["model"] == model]
        shares = [one["share"] for one in rows]
        means = [statistics.fmean(one[key] for one in rows) for key in ("by_chance", "mass_off_the_true_class")]
        share = f"{statistics.fmean(shares):.3f} ± {statistics.stdev(shares):.3f}"
        print(f"| `{model}` | {len(rows)} | {share} | {means[0]:.3f} | {means[1]:.2f} |")


if __name__ == "__main__":
    main()
