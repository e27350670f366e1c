"""The result of a run as its folder, a weights file and a hub's folder record it."""

from typing import Any

from tembed.common.plain_values import check_fields, fits, is_finite, wrong_field

RESULT_TYPES: dict[str, Any] = {
    "best_epoch": int,
    "epochs": int,
    "val_accuracy": float,
    "test_accuracy": float,
    "total_seconds": float,
    "test": dict[str, Any],
}
"""The types of what every result of a run has."""


def check_result(result: Any) -> None:
    """Raise `TembedError` unless this is the result of a run."""
    check_fields(result, RESULT_TYPES)
    check_fields(result["test"], {"images": int})
    for name in ("val_accuracy", "test_accuracy"):
        if not 0 <= result[name] <= 1:
            raise wrong_field(result, name)
    if result["total_seconds"] < 0 or not is_finite(result["total_seconds"]):
        raise wrong_field(result, "total_seconds")
    for record, name in ((result, "best_epoch"), (result, "epochs"), (result["test"], "images")):
        if record[name] < 1:
            raise wrong_field(record, name)
    if not fits(result.get("train_images"), int | None):
        raise wrong_field(result, "train_images")
