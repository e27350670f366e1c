"""A finished run as one small file: what was asked for, where, the curve, and the score."""

from pathlib import Path
from typing import Any

from tembed.errors import TembedError
from tembed.files import explained, read_json, write_json
from tembed.training.run import Run


def summary(run: Run) -> dict[str, Any]:
    """All that is worth keeping of a run but its weights."""
    result = run.result
    if result is None:
        raise TembedError(f"{run.folder} is not finished: run its command again to finish it")
    environment = read_json(run.environment_path)
    last = environment["starts"][-1]
    return {
        "recipe": run.recipe.plain() | {"preset": run.recipe.preset},
        "data_sha256": environment["data_sha256"],
        "environment": {key: value for key, value in last.items() if key not in ("started", "epoch", "step")},
        "starts": len(environment["starts"]),
        "wall_seconds": result["total_seconds"],
        "curve": run.metrics,
        "result": result,
    }


def save_summary(run: Run, folder: str | Path) -> Path:
    """Write the summary as ``<model>-<data>-<preset>-<seed>.json`` and return its path."""
    record = summary(run)
    recipe = record["recipe"]
    path = Path(folder) / f"{recipe['model']}-{recipe['data']}-{recipe['preset']}-{recipe['seed']}.json"
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return path
