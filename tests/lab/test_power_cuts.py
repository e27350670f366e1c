"""Whatever call fails, and whenever the power is cut: nothing that was saved is lost, and the same command goes on.

tests/campaign/power_cuts.py tries every call and every state; here is a share of them.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disk import Disk, Journal, snapshot
from support.power_cuts import DONE, FAULTS, WORKS, Continuing, Promise, Training, Tried, Work, modelled

from tembed.common.files import sync_folder, write_file

SLOW = {Training: (3, 8), Continuing: (3, 6)}
"""Failing calls and power cuts of the works that train; of the others there are more."""


@pytest.fixture(autouse=True, scope="module")
def _modelled() -> Iterator[None]:
    with modelled():
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("kind", WORKS)
def test_nothing_is_lost(kind: type[Work], home: Path) -> None:
    tried, dice = Tried.of(kind, home), random.Random(0)
    failures, cuts = SLOW.get(kind, (10, 12))
    calls = range(tried.calls)
    for call in sorted(dice.sample(calls, min(failures, tried.calls))):
        tried.failure(call, *dice.choice(FAULTS))
    renames = [call + 1 for call in calls if tried.disk.calls[call].kind == "rename"]
    for call in [*dice.sample(renames, min(cuts // 2, len(renames))), *dice.sample(calls, min(cuts, tried.calls))]:
        states = list(tried.states(call, 8))
        for state in dice.sample(states, min(2, len(states))):
            tried.power_cut(call, state)
    for state in tried.states(tried.calls, 4):
        tried.power_cut(tried.calls, state)


def test_a_power_cut_loses_what_is_not_synced(tmp_path: Path) -> None:
    before, folder = tmp_path / "before", tmp_path / "folder"
    for each in (before, folder):
        each.mkdir()
        (each / "old").write_bytes(b"old")
    with Disk(folder).watched() as disk:
        write_file(folder / "new", b"1234", sync=False)
    assert [call.kind for call in disk.calls] == ["create", "write", "rename"]
    states = list(Journal(before, disk.calls).states(3, 64, random.Random(0)))
    assert len(states) == 2**4  # the new name, each half of the data, the rename
    assert all(state["old"] == b"old" for state in states)
    assert {state.get("new", b"no file") for state in states} == {b"no file", b"", b"12", b"\0\x0034", b"1234"}
    with disk.watched():
        write_file(folder / "new", b"5678")
    for state in Journal(before, disk.calls).states(len(disk.calls), 64, random.Random(0)):
        assert state == snapshot(folder) == {"old": b"old", "new": b"5678"}


class Careless(Work):
    """writes a file in place"""

    def do(self, folder: Path, promise: Promise) -> None:
        write_file(folder / "file", b"content", sync=False)
        promise(DONE)

    def check(self, folder: Path, promised: list[object]) -> None:
        assert DONE not in promised or (folder / "file").read_bytes() == b"content"

    def left(self, folder: Path) -> bytes:
        return (folder / "file").read_bytes()


def test_work_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    tried = Tried.of(Careless, tmp_path)
    *_, lost = tried.states(tried.calls, 64)
    with pytest.raises(FileNotFoundError):
        tried.power_cut(tried.calls, lost)


def test_work_that_writes_past_the_file_module_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"open .*bypasses tembed\.common\.files"), Disk(tmp_path).watched():
        (tmp_path / "file").write_text("content")
    with Disk(tmp_path).watched() as disk:
        sync_folder(tmp_path)
    assert [call.kind for call in disk.calls] == ["sync"]
