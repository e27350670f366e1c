"""A folder from a stranger may hold links, which `git clone` keeps. No command writes through one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.datasets import store_world
from support.grids import ONE

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.demo import Demo, run_demo

TRAIN = ["train", "rn26-embed", "--data", "dots", "--batch-size", "30", "--quiet", "--out", "run"]
REFUSED = "it is a link, and links are not followed; remove it"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset ``dots``, a run on it, and a picture."""
    folder = tmp_path_factory.mktemp("trained")
    store_world(folder / "data", "dots", 100, 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TEMBED_DATA", str(folder / "data"))
        assert main([*TRAIN, "--epochs", "1"]) == 0
        assert main(["data", "show", "dots", "--out", "photo.png"]) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, quick_analysis: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a copy of `trained`."""
    monkeypatch.setenv("TEMBED_DATA", str(trained / "data"))
    here = tmp_path / "here"
    shutil.copytree(trained, here, ignore=shutil.ignore_patterns("data"))
    monkeypatch.chdir(here)
    return here


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder below a folder: when it was written, and its content."""
    found = sorted(folder.rglob("*"))
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in found}


@contextmanager
def planted(paths: list[Path], outside: Path) -> Iterator[None]:
    """What is at these paths is outside meanwhile, with links in its place. Nothing may change there."""
    moved = [(path, outside / str(number)) for number, path in enumerate(paths)]
    outside.mkdir()
    for path, target in moved:
        path.rename(target)
        path.symlink_to(target)
    before = tree(outside)
    yield
    assert tree(outside) == before
    for path, target in moved:
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
        target.rename(path)
    outside.rmdir()


COMMANDS = {
    "train": [*TRAIN, "--tensorboard", "--epochs", "2"],
    "evaluate": ["evaluate", "run"],
    "analyze": ["analyze", "run", "--images-per-class", "2", "--fast-maps", "--no-network", "--quiet"],
    "explore": ["explore", "run", "--images-per-class", "2", "--no-network", "--quiet"],
    "explain": ["explain", "run", "photo.png", "--overlays", "--words"],
    "predict": ["predict", "run", "photo.png", "--out", "table.csv", "--quiet"],
    "report": ["report", "run"],
    "runs": ["runs", "run", "--save", "saved"],
    "export": ["export", "run", "--hub", "hub", "--onnx", "x.onnx", "--quiet"],
    "data": ["data", "show", "dots"],
}


SLOW = ("analyze", "export")


@pytest.mark.parametrize("command", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in COMMANDS])
def test_no_command_writes_through_a_link(
    here: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything that a command has written is moved outside, with links in its place, and the command runs again."""
    line, outside = COMMANDS[command], tmp_path / "outside"
    before = tree(here)
    assert main(line) == 0
    written = [Path(name) for name, found in tree(here).items() if before.get(name) != found]
    again = [*line[:-1], "3"] if command == "train" else line
    files = [path for path in written if path.is_file() and path.name != "lock"]
    assert files
    with planted(files, outside):
        assert main(again) == 0
    capsys.readouterr()
    for path in written:
        is_folder = path.is_dir() and path.parent != here  # the user named the folders in `here`
        if command == "analyze" and ("page" in path.parent.parts or path.name == "figures"):
            continue  # takes long, and `explore` and `evaluate` make them with the same functions
        if is_folder or path.name == "lock":
            with planted([path], outside):
                assert main(again) == 2
                assert REFUSED in capsys.readouterr().err, path


@pytest.mark.process
def test_no_grid_writes_through_a_link(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(ONE)
    line, outside = ["grid", "mine.toml", "--threads", "1", "--quiet"], tmp_path / "outside"
    assert main(line) == 0
    (run,) = here.glob("runs/rn20*")
    notes = here / "runs" / ".grid"
    (log,) = notes.glob("*.log")
    for kind in ("progress", "error"):
        (notes / f"{run.name}.{kind}").touch()
    (run / "result.json").unlink()
    left = [path for path in (*run.rglob("*"), *notes.iterdir()) if path.is_file()]
    files = [path for path in left if path.name != "lock" and path != log]
    with planted(files, outside):
        assert main([*line, "--retry"]) == 0
    (run / "result.json").unlink()
    capsys.readouterr()
    for path, code in ((log, 1), (notes, 2)):
        with planted([path], outside):
            assert main([*line, "--retry"]) == code
        said = capsys.readouterr()
        assert REFUSED in said.out + said.err


@pytest.mark.parametrize("name", ["rn26", "rn26-embed", "analysis", "report"])
def test_no_demo_writes_through_a_link(tmp_path: Path, name: str) -> None:
    store_world(tmp_path / "data", "dots", 100, 16)
    out, outside = tmp_path / "out", tmp_path / "outside"
    (out / name).mkdir(parents=True)
    demo = Demo(epochs=1, train_images=40, images_per_class=2, data="dots")
    with planted([out / name], outside), pytest.raises(TembedError, match=REFUSED):
        run_demo(demo, out, root=tmp_path / "data")
