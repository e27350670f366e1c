"""How much memory a call needs, by torch's own record of its allocations."""

from collections.abc import Callable

import torch


def peak_memory(call: Callable[..., object], *arguments: object) -> int:
    """Most bytes that torch held at once during the call, beyond those it held before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = call(*arguments)
    del result
    held = peak = 0
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
