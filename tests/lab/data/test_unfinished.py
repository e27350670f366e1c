"""An import that ends early keeps what it has decoded, and the next one goes on from there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.datasets import entries
from support.progress import Said

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.data import pool_writer
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers import decoding
from tembed.lab.data.store import remove_dataset, stored_names, unfinished_names

CHILD = """
import sys, time
from tembed.common.progress import Progress
from tembed.lab.data import pool_writer
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers import decoding

class Wait(Progress):
    def update(self, task, done, total, **numbers):
        if done > 12:
            print(done, round(numbers["images_per_second"]) > 0, flush=True)
            time.sleep(600)

pool_writer.SAVE_SECONDS, decoding.BATCH_IMAGES = 0, 4
import_images(sys.argv[1], "pets", size=6, skip_broken=True, progress=Wait())
"""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after every fourth image."""
    monkeypatch.setattr(pool_writer, "SAVE_SECONDS", 0)
    monkeypatch.setattr(decoding, "BATCH_IMAGES", 4)


@pytest.fixture
def pets(tmp_path: Path, make: SimpleNamespace, often: None) -> Path:
    """Twenty images, the third of which is broken."""
    files = make.class_folders({"cat": 12, "dog": 8}) | {"cat/002.png": b"broken"}
    return make.folder(tmp_path / "pets", files)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a dataset but for the notes about their states."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "verified.json"}


def interrupt_at(path: Path, images: int, **options: object) -> None:
    class Stop(Said):
        def update(self, task: str, done: float, total: float, **numbers: object) -> None:
            if done > images:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_images(path, "pets", progress=Stop(), **options)  # type: ignore[arg-type]


@pytest.mark.process
def test_a_killed_import_goes_on_where_it_was(root: Path, pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(pets)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "16 True\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert stored_names(root) == []
    assert unfinished_names(root) == ["pets"]
    assert main(["data", "list"]) == 0
    assert "unfinished import" in capsys.readouterr().out
    (hidden,) = root.glob(".pets.*")
    inode, said = os.stat(hidden / "images.npy").st_ino, Said()
    stored = import_images(pets, "pets", size=6, skip_broken=True, progress=said)
    assert "continuing an import that ended early: 12 of 20 files are already decoded" in said.lines
    assert os.stat(stored.folder / "images.npy").st_ino == inode
    assert entries(root) == ["pets"]
    whole = import_images(pets, "pets", size=6, skip_broken=True, root=root.parent / "whole")
    assert contents(stored.folder) == contents(whole.folder)
    assert [line.split(":")[0] for line in stored.manifest["left_out"]] == ["cat/002.png"]


def test_after_a_broken_image_the_import_goes_on_without_it(root: Path, pets: Path, make: SimpleNamespace) -> None:
    (pets / "cat" / "002.png").write_bytes(make.png(make.random_images(1)[0]))
    for name in ("003.png", "007.png"):
        (pets / "dog" / name).write_bytes(b"broken")
    with pytest.raises(TembedError, match="2 of 20 images are broken"):
        import_images(pets, "pets")
    said = Said()
    stored = import_images(pets, "pets", skip_broken=True, progress=said)
    assert any("12 of 20 files are already decoded" in line for line in said.lines)
    assert len(stored.labels) == 18


@pytest.mark.parametrize("what", ["pixels", "record", "source", "options"])
def test_nothing_is_kept_if_anything_has_changed(root: Path, pets: Path, make: SimpleNamespace, what: str) -> None:
    (pets / "cat" / "002.png").unlink()
    interrupt_at(pets, 12)
    (hidden,) = root.glob(".pets.*")
    size = None
    if what == "pixels":
        with (hidden / "images.npy").open("r+b") as file:
            file.seek(200)
            file.write(b"?")
    elif what == "record":
        (hidden / "unfinished.json").write_text(json.dumps({"files": {}}))
    elif what == "source":
        (pets / "cat" / "001.png").write_bytes(make.png(make.random_images(1, seed=99)[0]))
    else:
        size = 6
    said = Said()
    stored = import_images(pets, "pets", size=size, progress=said)
    assert not any("continuing" in line for line in said.lines)
    whole = import_images(pets, "pets", size=size, root=root.parent / "whole")
    assert contents(stored.folder) == contents(whole.folder)


def test_an_unfinished_import_can_be_removed(root: Path, pets: Path) -> None:
    interrupt_at(pets, 12, skip_broken=True)
    assert unfinished_names(root) == ["pets"]
    remove_dataset("pets")
    assert not entries(root)
    with pytest.raises(TembedError, match="cannot be removed"):
        remove_dataset("pets")


def test_a_link_in_place_of_the_hidden_folder_is_not_followed(root: Path, pets: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "unfinished.json").write_text("{}")
    root.mkdir()
    (root / ".pets.unfinished").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TembedError, match="it is a link, and links are not followed"):
        import_images(pets, "pets", skip_broken=True)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["unfinished.json"]
