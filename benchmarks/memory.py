"""How much memory a call needs, from the allocations that torch records."""

from collections.abc import Callable

import torch


def peak_memory(call: Callable[..., object], *arguments: object) -> int:
    """The most bytes allocated by torch at one time during the call, beyond those allocated before."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as profile:
        result = call(*arguments)
    del result
    held = peak = 0
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
