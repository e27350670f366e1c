"""The claims about the features of trained networks, without figures, saved beside the run files.

    python benchmarks/claims.py RUN [--baseline RUN] [--also RUN ...] [--out results/analysis]

Writes what `tembed analyze` writes as claims.json, named after the run or the shipped weights. The paper's sentences
are about CIFAR-10; on other data this asks whether they hold where the block is at work.
"""

import argparse
from pathlib import Path

from tembed.common.files import write_json
from tembed.common.progress import Lines
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.claims import measure_claims
from tembed.lab.report.analysis_report import claims_record
from tembed.lab.training.recipe import recipe_of
from tembed.lab.training.run import run_name

HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--baseline")
    parser.add_argument("--also", nargs="+", default=[], metavar="RUN")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "analysis")
    given = parser.parse_args()
    analysis = analyze(given.run, baseline=given.baseline, also=given.also, progress=Lines())
    claims = measure_claims(analysis)
    is_run = Path(given.run).is_dir()
    name = run_name(recipe_of(analysis.network)) if is_run else given.run.replace("/", "-")
    path = given.out / f"{name}.json"
    write_json(path, claims_record(analysis, claims))
    print(path)
    for claim in claims:
        if claim.was_measured:
            print(f"  {claim.name} ({claim.part}): {claim.weights.verdict}, {claim.weights.why}", flush=True)


if __name__ == "__main__":
    main()
