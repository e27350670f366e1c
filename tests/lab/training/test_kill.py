"""A run that is killed at any moment and resumed leaves the files of an undisturbed run, bit for bit."""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kills import COMMANDS, TIMEOUT, Reference, fingerprint, finish, start, starts

pytestmark = pytest.mark.process

KILLS = {"block": 2, "paper": 1, "sampled": 1}  # how often each run is killed

Alone = Callable[[str], Reference]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Alone:
    """The undisturbed run of each command, made when first needed."""
    made: dict[str, Reference] = {}

    def reference(name: str) -> Reference:
        if name not in made:
            made[name] = Reference(COMMANDS[name], tmp_path_factory.mktemp("alone") / name, worlds)
        return made[name]

    return reference


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_runs_killed_at_random_moments(name: str, alone: Alone, tmp_path: Path) -> None:
    kills = alone(name).killed(tmp_path / "run", random.Random(name), KILLS[name])
    assert kills >= 1, "the run was over before it was killed"


@pytest.mark.slow
def test_a_run_that_is_stopped_three_times_saves_and_resumes(alone: Alone, tmp_path: Path, worlds: Path) -> None:
    out = tmp_path / "run"
    for count, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), 1):
        process = start(COMMANDS["paper"], out, worlds)
        while starts(out) < count:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 128 + number
        assert "run the same command again" in said
        assert (out / "checkpoints" / "newest.safetensors").exists()
        assert not (out / "result.json").exists()
    finish(start(COMMANDS["paper"], out, worlds))
    assert fingerprint(out) == alone("paper").left
