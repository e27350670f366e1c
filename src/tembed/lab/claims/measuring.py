"""Claims as measures of one network: the loops over kinds of networks, seeds, random draws and half-samples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tembed.common.errors import TembedError
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.compared_runs import MANY_UNTRAINED, RUN, UNTRAINED
from tembed.lab.analysis.features import Features
from tembed.lab.analysis.units import Unit
from tembed.lab.claims.claim import (
    Claim,
    Control,
    Measure,
    Part,
    corrected,
    with_verdicts,
    without_verdict,
)
from tembed.lab.claims.controls import CONTROLS, ControlSpec, find_control
from tembed.lab.claims.evidence import Rival, is_defined, ranked
from tembed.lab.claims.half_samples import Draws, HalfSamples, measure
from tembed.paper import Sentence

T = TypeVar("T")
About = Literal["features", "units"]
RANDOM_KINDS = (UNTRAINED, MANY_UNTRAINED)
"""Networks with random weights: all of them count, not the first one alone."""


@dataclass(frozen=True)
class Subject:
    """One network, as a measure gets it.

    ``network``: its features, or its units. ``samples``: the half-samples to measure it on. ``own``: whether it is a
    network of the run, unchanged: only these are ranked among other groupings or pairs.
    """

    network: Any
    samples: HalfSamples
    own: bool
    measuring: "Measuring"

    @property
    def features(self) -> Features:
        return cast(Features, self.network)

    @property
    def units(self) -> Sequence[Unit]:
        return cast(Sequence[Unit], self.network)

    @property
    def analysis(self) -> Analysis:
        return self.measuring.analysis

    def once(self, function: Callable[[Analysis], T]) -> T:
        """What a function of the analysis returns, computed once for all networks and claims."""
        return self.measuring.once(function)


@dataclass(frozen=True)
class Found:
    """What was measured for a claim. ``own``: its own results, over seeds; the first one has all draws."""

    own: list[Any]
    claim: "ClaimSpec"
    measuring: "Measuring"

    @property
    def analysis(self) -> Analysis:
        return self.measuring.analysis

    @property
    def samples(self) -> HalfSamples:
        return self.measuring.samples

    def once(self, function: Callable[[Analysis], T]) -> T:
        return self.measuring.once(function)

    def of(self, control: str) -> list[Any]:
        """The results of a control on the networks of its kind."""
        spec = find_control(control)
        networks = range(len(self.measuring.networks(self.claim, spec)))
        found = [self.measuring.results(self.claim, spec, index) for index in networks]
        return [result for results in found for draws in results.values() for result in draws]


def _nothing(found: Found) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class ClaimSpec:
    """A claim, as a measure of one network and the controls that it must be ahead of.

    ``paper``: the sentence of the paper, or any text, such as "not in the paper". ``definition``: how the number is
    measured; or a function that says so. ``measure``: returns draws, the values on all images and on each half-sample.
    ``controls``: names of registered controls; one is left out if there is no network of its kind. ``part``: which part
    of the sentence this is. ``shown``: names of controls that are measured and shown, without influence.
    ``no_verdict``: why the claim gets no verdict, or a function that says so; all of its controls are then only shown.
    ``missing``: why the claim cannot be measured, or None. ``of``: a control whose networks the claim is about, instead
    of the run. ``about``: what the measure gets of a network.

    A measure may return more than draws. Then ``value`` turns its result into draws. ``readings``: if the sentence can
    be read in several ways, the draws of each, by name; the first one is shown as the value. ``beside``: further
    controls, over the seeds. ``ranked``: other groupings or pairs ``(1 + R, G)``, over the seeds, which are shown.
    ``notes``: numbers without influence. ``refuted``: why a result refutes the claim whatever its number, or None.
    """

    name: str
    paper: Sentence | str
    definition: str | Callable[[Analysis], str]
    measure: Callable[[Subject], Any]
    controls: tuple[str, ...] = ()
    part: Part = "descriptive"
    shown: tuple[str, ...] = ()
    no_verdict: str | Callable[[Found], str] = ""
    value: Callable[[Any], Draws] = lambda result: result
    readings: Mapping[str, Callable[[Any], Draws]] = field(default_factory=dict)
    beside: Callable[[Found], Mapping[str, Sequence[Draws]]] = _nothing
    ranked: Callable[[Found], Mapping[str, Sequence[NDArray[np.float64]]]] = _nothing
    notes: Callable[[Found], Mapping[str, Measure]] = _nothing
    missing: Callable[[Analysis], str | None] = lambda analysis: None
    refuted: Callable[[Any], str | None] = lambda result: None
    of: str = RUN
    about: About = "features"


CLAIMS: dict[str, ClaimSpec] = {}


def register_claim(spec: ClaimSpec) -> None:
    """Add a claim: every later analysis measures it and shows it in its report."""
    if spec.name in CLAIMS:
        raise TembedError(f"a claim {spec.name!r} is already registered: choose another name")
    CLAIMS[spec.name] = spec


def measure_claims(analysis: Analysis) -> list[Claim]:
    """All registered claims, with verdicts that are corrected across all of them.

    Of a network without patch scores, those about units only.
    """
    for control in CONTROLS.values():
        if unknown := [name for name in control.claims if name not in CLAIMS]:
            raise TembedError(f"control {control.name!r} names the unknown claim {unknown[0]!r}: {', '.join(CLAIMS)}")
    specs = [spec for spec in CLAIMS.values() if analysis.has_scores or spec.about == "units"]
    return Measuring(analysis).claims(specs)


def controls_of(spec: ClaimSpec) -> list[ControlSpec]:
    """The controls that a claim lists, those that were added to it, and those that are only shown."""
    listed = (*spec.controls, *spec.shown)
    added = [name for name, control in CONTROLS.items() if spec.name in control.claims and name not in listed]
    return [find_control(name) for name in (*spec.controls, *added, *spec.shown)]


class Measuring:
    """Measures the networks of an analysis for claims; claims with the same measure share its results."""

    def __init__(self, analysis: Analysis, samples: HalfSamples | None = None):
        self.analysis = analysis
        self.samples = samples or HalfSamples.draw(analysis.sample.labels.numpy(), len(analysis.classes), analysis.seed)
        self._once: dict[Callable[..., Any], Any] = {}
        self._results: dict[tuple[Callable[..., Any], str, int], Mapping[str, list[Any]]] = {}
        self._total = 0

    def once(self, function: Callable[[Analysis], T]) -> T:
        if function not in self._once:
            self._once[function] = function(self.analysis)
        return cast(T, self._once[function])

    def claims(self, specs: Sequence[ClaimSpec]) -> list[Claim]:
        """The claims with corrected verdicts."""
        measured = [spec for spec in specs if spec.missing(self.analysis) is None]
        self._total = len(
            {
                (spec.measure, control.name, index)
                for spec in measured
                for control in (_own(spec), *controls_of(spec))
                for index in range(len(self.networks(spec, control)))
            }
        )
        return corrected([self.claim(spec) for spec in specs])

    def claim(self, spec: ClaimSpec) -> Claim:
        """One claim, before the correction across claims. It cannot hold if a control is undefined on these images."""
        key, text = (spec.paper.key, str(spec.paper)) if isinstance(spec.paper, Sentence) else ("", spec.paper)
        empty = Claim(spec.name, text, "", sentence=key, part=spec.part)
        if why := spec.missing(self.analysis):
            return without_verdict(empty, "not measured", why)
        networks = range(len(self.networks(spec, _own(spec))))
        if not networks:
            return without_verdict(empty, "not measured", f"no {_own(spec).kind} was given")
        own = [result for index in networks for (result,) in self.results(spec, _own(spec), index).values()]
        readings = spec.readings or {"": spec.value}
        numbers = {reading: [value(result) for result in own] for reading, value in readings.items()}
        first = next(iter(numbers.values()))
        if not np.isfinite([draws[0] for draws in first]).all():
            return without_verdict(empty, "not measured", "its number is undefined on these images")
        found = Found(own, spec, self)
        judged: list[Control] = []
        shown: list[Control] = []
        for reading, draws in numbers.items():
            for rival, counts in self.rivals(spec, found, readings[reading], draws):
                (judged if counts else shown).append(rival.control(draws, reading))
        claim = replace(
            empty,
            definition=spec.definition if isinstance(spec.definition, str) else spec.definition(self.analysis),
            value=measure(first[0]),
            controls=tuple(one for one in judged if is_defined(one)),
            notes={name: note for name, note in spec.notes(found).items() if np.isfinite(note.value)},
            shown=tuple(one for one in shown if is_defined(one)),
            undefined=tuple(one.name for one in judged if not is_defined(one)),
            not_given=tuple(self.not_given(spec)),
            over_seeds=tuple(float(draws[0]) for draws in first),
            refuted=tuple(spec.refuted(result) for result in own),
        )
        if spec.no_verdict:
            reason = spec.no_verdict if isinstance(spec.no_verdict, str) else spec.no_verdict(found)
            return without_verdict(claim, "no verdict", reason)
        if not claim.controls:
            return without_verdict(claim, "not measured", "none of its controls is given and defined on these images")
        return with_verdicts(claim)

    def rivals(
        self, spec: ClaimSpec, found: Found, value: Callable[[Any], Draws], own: Sequence[Draws]
    ) -> Iterator[tuple[Rival, bool]]:
        """What a number of a claim is compared with, and whether that counts for the verdict."""
        counts = not spec.no_verdict
        for name, seeds in spec.beside(found).items():
            yield Rival(name, [[draws] for draws in seeds]), counts
        for control in controls_of(spec):
            for rival in self.rivals_by(control, spec, value, own):
                yield rival, counts and control.name not in spec.shown
        for name, others in spec.ranked(found).items():
            yield ranked(name, own, others), False

    def rivals_by(
        self, control: ControlSpec, spec: ClaimSpec, value: Callable[[Any], Draws], own: Sequence[Draws]
    ) -> list[Rival]:
        """The numbers of a registered control beside those of a claim."""
        if control.constant is not None:
            return [Rival(control.name, [[np.full(len(draws), control.constant)] for draws in own])]
        found: dict[str, list[list[Draws]]] = {}
        for index in range(len(self.networks(spec, control))):
            for name, draws in self.results(spec, control, index).items():
                found.setdefault(name, []).append([value(result) for result in draws])
        paired, pooled = control.kind == _own(spec).kind, control.kind in RANDOM_KINDS
        return [Rival(name, numbers, paired, pooled) for name, numbers in found.items()]

    def not_given(self, spec: ClaimSpec) -> Iterator[str]:
        """The controls that would count for a claim's verdict, but of whose kind there is no network."""
        for control in controls_of(spec):
            missing = control.constant is None and not len(self.networks(spec, control))
            if missing and control.name not in spec.shown:
                yield control.name

    def networks(self, spec: ClaimSpec, control: ControlSpec) -> Sequence[Any]:
        """The networks of the kind that a control is measured on."""
        if control.constant is not None:
            return ()
        known: Mapping[str, Sequence[Any]] = self.analysis.networks if spec.about == "features" else self.analysis.units
        return known.get(control.kind, ())

    def results(self, spec: ClaimSpec, control: ControlSpec, index: int) -> Mapping[str, list[Any]]:
        """The results of a measure on one network of a control, by name: one for each draw of a random change."""
        key = spec.measure, control.name, index
        if key not in self._results:
            network = self.networks(spec, control)[index]
            samples = self.samples if index == 0 or control.kind in RANDOM_KINDS else self.samples.first(0)
            found: dict[str, list[Any]] = {}
            try:
                for draw in range(control.draws):
                    for name, one in control.changed(network, self.analysis.seed + draw).items():
                        subject = Subject(one, samples, control.name == RUN, self)
                        found.setdefault(name, []).append(spec.measure(subject))
            except TembedError as error:
                raise TembedError(f"claim {spec.name!r}, measured on {control.name!r}: {error}") from None
            self._results[key] = found
            self.analysis.progress.update("claims", len(self._results), max(self._total, len(self._results)))
        return self._results[key]


def _own(spec: ClaimSpec) -> ControlSpec:
    """The networks that a claim is about."""
    return ControlSpec(RUN) if spec.of == RUN else find_control(spec.of)
