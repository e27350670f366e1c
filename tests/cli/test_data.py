"""``tembed data``: every command as a user types it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tembed.cli.main import main


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of five cats and five dogs; the store and the current folder are beside it."""
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


def test_import_list_check_and_show(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "import", str(pets), "--name", "mine"]) == 0
    assert "10 images of 8x8, 2 classes, 5 each" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"cifar10 +CIFAR-10 +not stored: tembed data get cifar10", listed)
    assert re.search(r"mine +imported +10 images", listed)
    assert main(["data", "check", "mine"]) == 0
    checked = capsys.readouterr().out
    assert "10 images, checksums correct" in checked
    assert "exact duplicates: 0 groups" in checked
    assert "across the paper split, seed 0: 0 groups" in checked
    assert main(["data", "show", "mine"]) == 0
    assert capsys.readouterr().out == "wrote mine.png\n"
    assert main(["data", "show", "mine", "--out", "other.png"]) == 0
    with Image.open("mine.png") as one, Image.open("other.png") as other:
        assert one.tobytes() == other.tobytes()


def test_check_names_duplicates(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "dog" / "copy.png").write_bytes((pets / "cat" / "0.png").read_bytes())
    assert main(["data", "import", str(pets), "--name", "mine"]) == 0
    assert main(["data", "check", "mine"]) == 0
    assert "  cat/0.png = dog/copy.png (across classes" in capsys.readouterr().out


def test_rename_and_remove(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "import", str(pets), "--name", "mine"]) == 0
    assert main(["data", "rename", "mine", "yours"]) == 0
    assert "yours: 10 images of 8x8" in capsys.readouterr().out
    assert main(["data", "remove", "mine"]) == 2
    assert "'mine' is not in" in capsys.readouterr().err
    assert main(["data", "remove", "yours"]) == 0
    assert capsys.readouterr().out == f"removed {pets.parent / 'store' / 'yours'}\n"


@pytest.mark.parametrize("damage", ["manifest.json", "labels.npy", "images.npy"])
def test_a_damaged_dataset_does_not_hide_the_others(
    pets: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    for name in ("first", "mine", "zebra"):
        assert main(["data", "import", str(pets), "--name", name]) == 0
    (pets.parent / "store" / "mine" / damage).write_bytes(b"{")
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert re.search(rf"mine +imported +damaged: .*{re.escape(damage)}", listed)
    assert re.search(r"first +imported +10 images", listed)
    assert re.search(r"zebra +imported +10 images", listed)


def test_fit_and_the_default_size_are_said(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (12, 6)).save(pets / "cat" / "wide.png")
    assert main(["data", "import", str(pets), "--name", "mine", "--fit", "pad"]) == 0
    said = capsys.readouterr()
    assert "11 images of 224x224" in said.out
    first, second = said.err.splitlines()
    assert first.endswith("cat/wide.png is 12x6, but cat/0.png is 8x8: every image becomes 224x224")
    assert second.startswith("note: cat/wide.png (12x6) fills 50 % of its square")


def test_skip_broken_lists_and_counts(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "dog" / "bad.jpg").write_bytes(b"no picture")
    assert main(["data", "import", str(pets), "--name", "mine"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tembed: error: ")
    assert "dog/bad.jpg: not an image in a known format" in said
    assert said.count("\n") == 1
    assert main(["data", "import", str(pets), "--name", "mine", "--skip-broken"]) == 0
    out = capsys.readouterr().out
    assert "left out dog/bad.jpg: not an image in a known format" in out
    assert "left out 1 broken image\n" in out


def test_size_resizes(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "import", str(pets), "--name", "small", "--size", "4"]) == 0
    assert "10 images of 4x4" in capsys.readouterr().out


def test_without_a_terminal_there_are_no_bars(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "import", str(pets), "--name", "mine"]) == 0
    assert capsys.readouterr().err == ""  # plain lines are printed only for long work


def test_get_from_a_wrong_path_gives_one_line_for_the_failure_and_one_for_the_way_out(
    pets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "get", "cifar10", "--from", str(pets)]) == 2
    tried, failed, error = capsys.readouterr().err.splitlines()
    assert tried == f"reading {pets}"
    assert "2 classes (cat, dog, …), which are not those of CIFAR-10" in failed
    assert error.startswith("tembed: error: no source is left for cifar10: put one of")
    assert error.endswith("or name a copy with --from")


def test_a_missing_dataset_gives_one_line(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "show"):
        assert main(["data", command, "nothing"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.process
def test_help_does_not_import_torch() -> None:
    code = """
import sys
from tembed.cli.main import main
try:
    main(["data", "--help"])
finally:
    assert "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
