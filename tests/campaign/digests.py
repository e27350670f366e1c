"""Digests of what the package computes: a change of shape must leave every one of them as it was.

::

    python tests/campaign/digests.py            compare with results/digests.json
    python tests/campaign/digests.py --record   write results/digests.json

Six networks are trained for 20 steps, one of them is analysed, its page is built, and a report is made from results/.
Tensors count by their values, not by their names. Only the command line is used, so this file outlives every move.
About two minutes on one core. A commit that changes arithmetic names the digests that it changes, and by how much.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
RECORD = REPOSITORY / "results" / "digests.json"
STEPS = ["--data", "parts", "--train-images", "320", "--batch-size", "16", "--epochs", "1"]
NETWORKS = {
    "rn26": [],
    "rn26-aux": ["--preset", "fast"],
    "rn26-embed": ["--preset", "fast", "--averaging", "0.5"],
    "rn20": ["--maximizer", "perturbed", "--flips", "alternating"],
    "wrn16-embed": ["--label-smoothing", "0.1", "--balanced"],
    "dn100-embed-cat": [],
}
CLOCKS = {"seconds", "total_seconds", "images_per_second"}


def tembed(*arguments: object, folder: Path) -> None:
    command = [sys.executable, "-m", "tembed", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def weights_digest(path: Path) -> str:
    """A hash of the tensors' values, in an order that does not depend on their names."""
    from safetensors.numpy import load_file

    tensors = load_file(path).values()
    each = sorted(hashlib.sha256(f"{t.dtype} {t.shape}".encode() + t.tobytes()).hexdigest() for t in tensors)
    return digest(each)


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clocks(each) for key, each in value.items() if key not in CLOCKS}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def measure(work: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for model, changes in NETWORKS.items():
        tembed("train", model, *STEPS, *changes, "--out", work / model, "--quiet", folder=work)
        found[f"weights of {model}"] = weights_digest(work / model / "best.safetensors")
        metrics = [json.loads(line) for line in (work / model / "metrics.jsonl").read_text().splitlines()]
        result = json.loads((work / model / "result.json").read_text())
        found[f"metrics of {model}"] = digest(without_clocks([metrics, result]))
    analysed = work / "analysis"
    tembed("analyze", "rn26-embed", "--baseline", "rn26", "--images-per-class", 3, "--out", analysed, folder=work)
    claims = json.loads((analysed / "claims.json").read_text())
    found["claims.json"] = digest(claims["claims"])
    for name in ("arrays.js", "atlas.js"):
        found[f"page, {name}"] = digest((analysed / "page" / "data" / name).read_bytes())
    found["page, about.js"] = digest((analysed / "page" / "data" / "about.js").read_bytes())
    runs = sorted((REPOSITORY / "results").glob("rn26*-cifar10-fast-?.json"))
    tembed("report", *runs, "--out", work / "report", folder=work)
    found["report.md"] = digest((work / "report" / "report.md").read_bytes())
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    if "--record" in sys.argv:
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    expected = json.loads(RECORD.read_text())
    different = [name for name in expected | found if expected.get(name) != found.get(name)]
    for name in different:
        print(f"{name}: {found.get(name)}, recorded: {expected.get(name)}")
    print(f"{len(found) - len(different)} of {len(found)} digests are as recorded")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
