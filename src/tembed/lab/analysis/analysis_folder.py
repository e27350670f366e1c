"""Where the analysis of a run is on disk, and what other commands read there."""

from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.files import below, read_json
from tembed.lab.analysis.effective_fields import EffectiveField, read_effective_field
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import AnyNetwork, Loadable, shipped

EFFECTIVE_FIELD = "effective_field.json"


def default_out(source: str) -> Path:
    """``analysis`` inside a run folder; ``analysis/<name>`` for other weights."""
    path = Path(source)
    if path.is_dir():
        return below(path, "analysis")
    return Path("analysis") / path.with_suffix("").as_posix().replace("/", "-").strip("-.")


def stored_effective_field(source: Loadable, network: AnyNetwork) -> EffectiveField | None:
    """The effective field that an analysis of these weights stored, or that comes with them; None if there is none."""
    if not isinstance(source, str | Path):
        return None
    beside = [path.with_suffix(f".{EFFECTIVE_FIELD}") for path in (Path(source), *shipped().values())]
    for path in (default_out(str(source)) / EFFECTIVE_FIELD, *beside):
        found = stored(path, network)
        if found is not None:
            return found
    return None


def stored(path: Path, network: AnyNetwork) -> EffectiveField | None:
    """The effective field in a file; None if there is none that can be read, or if it is of other weights."""
    try:
        found = read_effective_field(read_json(path))
    except (OSError, TembedError, KeyError, TypeError, ValueError):
        return None
    return found if found.weights == checksum(network.state_dict()) else None
