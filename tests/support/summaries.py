"""Summaries of runs with made-up results."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tembed.lab.training.recipe import Recipe

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Writes a summary as `tembed runs --save` does: ``put(recipe, accuracy)``, accuracy in %.

    ``metrics`` are the same for every epoch. ``epochs``: after how many the run stopped, by default all of them.
    """
    folder = tmp_path / "summaries"
    folder.mkdir()

    def write(
        recipe: Recipe,
        accuracy: float,
        sha256: str = "a" * 64,
        test_images: int = 12000,
        metrics: dict[str, float | None] | None = None,
        epochs: int | None = None,
    ) -> Path:
        recipe = recipe.complete()
        epochs = recipe.epochs if epochs is None else epochs
        curve: list[dict[str, Any]] = [
            {"epoch": epoch, "val_accuracy": accuracy / 100 * epoch / epochs, **(metrics or {})}
            for epoch in range(1, epochs + 1)
        ]
        value = {
            "recipe": recipe.to_json() | {"preset": recipe.preset},
            "data_sha256": sha256,
            "curve": curve,
            "result": {
                "best_epoch": epochs,
                "val_accuracy": accuracy / 100,
                "test_accuracy": accuracy / 100,
                "epochs": epochs,
                "test": {"images": test_images},
                "total_seconds": 60.0,
            },
        }
        path = folder / f"{len(list(folder.iterdir()))}.json"
        path.write_text(json.dumps(value))
        return path

    return write
