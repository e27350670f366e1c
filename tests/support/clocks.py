"""Records without what a clock measured."""

from typing import Any

CLOCK_FIELDS = ("seconds", "total_seconds", "images_per_second")


def without_clock(record: dict[str, Any]) -> dict[str, Any]:
    """A record of metrics or a result without the fields that differ from run to run."""
    return {key: value for key, value in record.items() if key not in CLOCK_FIELDS}
