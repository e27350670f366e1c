"""A claim of the paper and its verdict, wherever it is judged: on features (§4.3) or on tables of accuracies (§4.2)."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "mostly holds", "does not hold", "unclear", "no claim", "not measured"]


@dataclass(frozen=True)
class Measure:
    """A number with its 95 % interval, or without one where none was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        text = f"{self.value:.3f}"
        return text if self.low is None else f"{text} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Claim:
    """``paper``: what the paper says. ``definition``: how it is measured. ``why``: the reason for the verdict."""

    name: str
    paper: str
    definition: str
    verdict: Verdict
    why: str
    values: dict[str, Measure] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return asdict(self)


def not_measured(name: str, paper: str, why: str) -> Claim:
    """A claim that this run or this dataset cannot decide."""
    return Claim(name, paper, "", "not measured", why)
