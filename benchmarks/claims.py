"""The claims about the features of trained networks, without figures, saved beside the run files.

    python benchmarks/claims.py RUN [RUN ...] [--baseline RUN] [--out results/analysis]

Writes what `tembed analyze` writes as claims.json, one file for each run, named after its model and data. The paper's
sentences are about CIFAR-10; on other data this asks whether they hold where the block is at work.
"""

import argparse
from pathlib import Path

from tembed.common.files import write_json
from tembed.common.progress import Lines
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.claims import measure_claims
from tembed.lab.report.analysis_report import claims_record

HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--baseline")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "analysis")
    given = parser.parse_args()
    for run in given.runs:
        analysis = analyze(run, baseline=given.baseline, progress=Lines())
        claims = measure_claims(analysis)
        path = given.out / f"{analysis.network.description.model}-{analysis.data}.json"
        write_json(path, claims_record(analysis, claims))
        print(path)
        for claim in claims:
            if claim.was_measured:
                print(f"  {claim.name} ({claim.part}): {claim.weights.verdict}, {claim.weights.why}", flush=True)


if __name__ == "__main__":
    main()
