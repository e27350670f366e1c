"""Files with random damage, of every kind that the package reads: read, or refused in one line that names the file.

tests/campaign/mutated_files.py tries thousands; here are a few of each kind, and those that ended in a traceback once.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mutations import KINDS, Files, Hang, Kind, limited, mutate_bytes, mutate_json
from support.power_cuts import modelled


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    with modelled():
        yield Files(tmp_path_factory.mktemp("mutated"))


@pytest.mark.filterwarnings("ignore")  # of the readers of other packages
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_refused(name: str, files: Files) -> None:
    slow = KINDS[name].read.__qualname__.startswith(("read_resumed", "read_run"))
    found = {files.try_file(name, f"suite {number}") for number in range(2 if slow else 8)}
    assert found <= {"refused", "other", "same"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("environment.json", b'"starts": [\n  {', b'"starts": [\n  {"memory": 1e999,'),
        ("network.json", b'"loaded"', b'"lost"'),
        ("network.json", b'"loaded": [', b'"loaded": [5,'),
        ("hub config", b'"seed": 0', b'"seed": [0]'),
        ("old state dict", b"q\0", b"hw"),
        ("cached features: train.npy", b"{'descr'", b"\0\0\0\0\0\0\0\0"),
    ],
)
def test_what_ended_in_a_traceback_is_refused(name: str, old: bytes, new: bytes, files: Files) -> None:
    content = files.original(KINDS[name])[0][KINDS[name].file]
    assert content is not None
    assert old in content
    assert files.try_content(name, content.replace(old, new, 1)) == "refused"


def test_the_seed_decides_the_damage(files: Files) -> None:
    made = [files.mutated(KINDS["PNG"], random.Random(seed)) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    value = {"a": [1, 2.5, {"b": "c"}], "d": None}
    assert any(mutate_json(value, random.Random(seed)) != value for seed in range(3))
    assert mutate_bytes(b"", random.Random(0), b"other") is not None


@pytest.mark.parametrize(
    ("read", "raised"),
    [
        (lambda folder: {}["missing"], KeyError),
        (lambda folder: bytearray(1 << 36), MemoryError),
        (lambda folder: all(True for _ in iter(int, 1)), Hang),
    ],
)
def test_what_is_neither_is_noticed(read: object, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.mutations.CPU_SECONDS", 0.05)
    kind = Kind("kind", "file", lambda folder: None, read)  # type: ignore[arg-type]
    with pytest.raises(raised), limited():
        kind.read(Path())
