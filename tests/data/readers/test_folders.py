"""Class folders import the same way from any folder or archive."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tembed.data import import_images, load
from tembed.data.readers import images as decoding
from tembed.data.readers.reading import Origin
from tembed.errors import TembedError

PETS = {"cat": 5, "dog": 6}


def test_a_folder_a_zip_and_every_tar_give_the_same_pool(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS)
    backwards = dict(reversed(files.items()))
    sources = [make.folder(tmp_path / "pets", files), make.zip(tmp_path / "pets.zip", backwards)]
    for kind in ("", "gz", "bz2", "xz"):
        sources.append(make.tar(tmp_path / f"pets.tar{kind}", backwards, f"w:{kind}"))
    wrapped = {f"download/pets/{name}": data for name, data in files.items()}
    sources.append(make.zip(tmp_path / "wrapped.zip", wrapped))
    stored = [import_images(path, f"pets{k}") for k, path in enumerate(sources)]
    assert len({one.sha256 for one in stored}) == 1
    assert stored[0].classes == ("cat", "dog")
    assert stored[0].manifest["class_counts"] == [5, 6]
    assert (stored[0].images[:5] == make.random_images(5, 8, 0)).all()


@pytest.mark.process
def test_decoding_in_processes_gives_the_same_pool(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make.folder(tmp_path / "pets", make.class_folders({"cat": 40, "dog": 40}))
    alone = import_images(folder, "alone")
    monkeypatch.setattr(decoding, "WORTH_PROCESSES", 1)
    monkeypatch.setattr(decoding, "BATCH_IMAGES", 7)
    monkeypatch.setattr(decoding.os, "sched_getaffinity", lambda _: {0, 1})
    assert import_images(folder, "together").sha256 == alone.sha256


@pytest.mark.process
def test_decoding_processes_end_when_their_parent_is_killed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "pets", make.class_folders({"cat": 4}))
    code = """
import multiprocessing, os, signal, sys
from tembed.data import import_images
from tembed.data.readers import images as decoding
from tembed.reporting.progress import Progress

class Killing(Progress):
    def update(self, task, done, total, **numbers):
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

decoding.WORTH_PROCESSES = 1
decoding.os.sched_getaffinity = lambda _: {0, 1}
import_images(sys.argv[1], "pets", progress=Killing())
"""
    command = [sys.executable, "-c", code, str(folder)]
    # This returns when no process has the output open any more. Workers that are still alive keep it open.
    killed = subprocess.run(command, stdout=subprocess.PIPE, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split()


def test_train_val_and_test_folders_are_remembered(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS, top=("Train/", "valid/", "test/"))
    stored = import_images(make.zip(tmp_path / "pets.zip", files), "pets")
    assert np.bincount(stored.origin).tolist() == [0, 11, 11, 11]
    splits = load("pets", split="official")
    assert (stored.origin[splits.val.indices.numpy()] == Origin.VAL).all()
    assert len(load("pets").train) > 11  # the paper's split pools them


def test_a_class_called_train_is_a_class(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "toys", make.class_folders({"boat": 4, "train": 4}))
    assert import_images(folder, "toys").classes == ("boat", "train")


def test_folders_within_a_class_belong_to_it(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = {name.replace("/", "/images/"): data for name, data in make.class_folders(PETS).items()}
    assert import_images(make.folder(tmp_path / "pets", files), "pets").classes == ("cat", "dog")


def test_hidden_files_and_other_endings_are_not_images(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    junk = [
        ".DS_Store",
        "cat/.hidden.png",
        "__MACOSX/cat/._0.png",
        "cat/Thumbs.db",
        ".git/x/y.png",
        "notes.txt",
    ]
    files = make.class_folders(PETS) | dict.fromkeys(junk, b"junk") | {"cat/boxes.xml": b"<xml/>"}
    for path in (make.folder(tmp_path / "pets", files), make.zip(tmp_path / "pets.zip", files)):
        assert import_images(path, "pets").manifest["class_counts"] == [5, 6]


def test_upper_case_endings_and_unicode_names_are_images(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    """A class written with a combining accent under train and a composed one under test is one class."""
    image = make.png(make.random_images(1)[0])
    files = {"train/cafe\u0301/ä 1.PNG": image, "test/caf\u00e9/日本.PnG": image, "test/犬/1.png": image}
    for path in (
        make.folder(tmp_path / "pets", files),
        make.zip(tmp_path / "pets.zip", files),
        make.tar(tmp_path / "pets.tar", files),
    ):
        assert import_images(path, "pets").classes == ("caf\u00e9", "犬")


def test_file_names_that_are_not_utf8_import(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "cat" / "\udcff.png").write_bytes(make.png(make.random_images(1)[0]))
    assert import_images(tmp_path / "pets", "pets").manifest["count"] == 1


def test_links_in_a_users_own_folder_are_followed_but_not_in_cycles(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    make.folder(tmp_path / "elsewhere", make.class_folders(PETS))
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "cat").symlink_to(tmp_path / "elsewhere" / "cat")
    (tmp_path / "elsewhere" / "cat" / "again").symlink_to(tmp_path / "pets")
    assert import_images(tmp_path / "pets", "pets").manifest["count"] == 5


def test_a_broken_image_among_good_ones_is_refused_by_name(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS)
    files["cat/003.png"] = files["cat/003.png"][:60]
    files["dog/bad.jpg"] = b"\xff\xd8\xff\xe0 no picture"
    folder = make.folder(tmp_path / "pets", files)
    with pytest.raises(TembedError, match=r"pets: cat/003\.png: .*`skip_broken`"):
        import_images(folder, "pets")
    assert not (root / "pets").exists()


def test_skip_broken_lists_what_it_leaves_out_and_substitutes_nothing(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.class_folders(PETS)
    good = import_images(make.folder(tmp_path / "good", files), "good")
    files["cat/003.png"] = files["cat/003.png"][:60]
    files["dog/bad.jpg"] = b"\xff\xd8\xff\xe0 no picture"
    stored = import_images(make.folder(tmp_path / "pets", files), "pets", skip_broken=True)
    assert [line.partition(":")[0] for line in stored.manifest["left_out"]] == ["cat/003.png", "dog/bad.jpg"]
    assert (stored.images == np.delete(good.images, 3, axis=0)).all()
    assert stored.labels.tolist() == [0] * 4 + [1] * 6


def test_only_broken_images_are_an_error(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "pets", {"cat/1.png": b"x", "cat/2.png": b""})
    with pytest.raises(TembedError, match="no readable image"):
        import_images(folder, "pets", skip_broken=True)


def test_images_of_different_sizes_or_not_square_need_a_size(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS) | {"dog/big.png": make.png(make.random_images(1, 9)[0])}
    folder = make.folder(tmp_path / "mixed", files)
    with pytest.raises(TembedError, match=r"dog/big\.png is 9x9, but cat/000\.png is 8x8: give `size`"):
        import_images(folder, "mixed")
    oblong = make.folder(tmp_path / "oblong", {"a/1.png": make.png(np.zeros((4, 6, 3), np.uint8))})
    with pytest.raises(TembedError, match=r"a/1\.png is 6x4, not square: give `size`"):
        import_images(oblong, "oblong")
    assert import_images(folder, "mixed", size=8).images.shape == (12, 8, 8, 3)
    assert import_images(oblong, "oblong", size=4).images.shape == (1, 4, 4, 3)


@pytest.mark.parametrize("size", [0, -1, 5000])
def test_an_absurd_size_is_refused(root: Path, tmp_path: Path, size: int) -> None:
    with pytest.raises(TembedError, match=f"`size` is {size}; it must be between 1 and 1024"):
        import_images(tmp_path, "x", size=size)


def test_an_image_outside_any_class_folder_is_named(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS) | {"stray.png": make.png(make.random_images(1)[0])}
    with pytest.raises(TembedError, match=r"stray\.png is not in a class folder"):
        import_images(make.folder(tmp_path / "pets", files), "pets")


def test_a_folder_without_images_says_what_was_expected(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    with pytest.raises(TembedError, match="no images in a known layout: expected one folder per class"):
        import_images(make.folder(tmp_path / "empty", {"a/readme.md": b""}), "empty")


def test_a_missing_path_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="nowhere does not exist"):
        import_images(tmp_path / "nowhere", "x")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "Ünï", "x" * 65])
def test_a_name_that_cannot_be_a_folder_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(TembedError, match="cannot be the name of a dataset"):
        import_images(tmp_path, name)


def test_parts_is_generated_not_imported(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="'parts' is generated"):
        import_images(tmp_path, "parts")
