"""Class folders import the same way from any folder or archive."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.images import image_files as images
from tembed.lab.data.importing import import_images, recognise
from tembed.lab.data.loading import load
from tembed.lab.data.readers import decoding, folders
from tembed.lab.data.readers.archives import open_archive
from tembed.lab.data.readers.reading import Options
from tembed.lab.data.subsets import CODES

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
from tembed.lab.data import import_images
from tembed.lab.data.readers import decoding
from tembed.common.progress import Progress

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
    killed = subprocess.run(command, stdout=subprocess.PIPE, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split()


def test_train_val_and_test_folders_are_remembered(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS, top=("Train/", "valid/", "test/"))
    stored = import_images(make.zip(tmp_path / "pets.zip", files), "pets")
    assert np.bincount(stored.subsets).tolist() == [0, 11, 11, 11]
    splits = load("pets", split="official")
    assert (stored.subsets[splits.val.indices.numpy()] == CODES["val"]).all()
    assert len(load("pets", split="paper").train) > 11  # the paper's split pools them


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


def test_broken_images_among_good_ones_are_refused_by_name_all_at_once(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make.class_folders(PETS)
    files["cat/003.png"] = files["cat/003.png"][:60]
    files["dog/bad.jpg"] = b"\xff\xd8\xff\xe0 no picture"
    folder = make.folder(tmp_path / "pets", files)
    said = Said()
    with pytest.raises(TembedError, match=r"pets: 2 of 12 images are broken; .*`skip_broken`") as refused:
        import_images(folder, "pets", progress=said)
    names = ["cat/003.png", "dog/bad.jpg"]
    assert [note.partition(":")[0] for note in refused.value.__notes__] == names
    assert [line.split(": ")[1] for line in said.lines] == names
    monkeypatch.setattr(decoding, "NAMED", 1)
    with pytest.raises(TembedError, match=r"2 of 12 images are broken, of which the first 1 are named above"):
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


def test_squares_of_one_size_keep_it(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    said = Said()
    stored = import_images(make.folder(tmp_path / "pets", make.class_folders(PETS)), "pets", progress=said)
    assert stored.images.shape == (11, 8, 8, 3)
    assert said.lines == []


def test_images_of_other_sizes_become_224_and_the_import_says_so(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.class_folders(PETS) | {"dog/big.png": make.png(make.random_images(1, 9)[0])}
    folder, said = make.folder(tmp_path / "mixed", files), Said()
    assert import_images(folder, "mixed", progress=said).images.shape == (12, 224, 224, 3)
    assert said.lines == [f"{folder}: dog/big.png is 9x9, but cat/000.png is 8x8: every image becomes 224x224"]
    assert import_images(folder, "small", size=8).images.shape == (12, 8, 8, 3)


def test_oblong_and_large_images_become_224(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    oblong = {f"{name}/1.png": make.png(np.zeros((4, 6, 3), np.uint8)) for name in "ab"}
    said = Said()
    import_images(make.folder(tmp_path / "oblong", oblong), "oblong", progress=said)
    assert "a/1.png is 6x4, not square: every image becomes 224x224" in said.lines[0]
    large = {f"{name}/1.png": make.png(np.zeros((1025, 1025, 3), np.uint8)) for name in "ab"}
    import_images(make.folder(tmp_path / "large", large), "large", progress=said)
    assert any("a/1.png is 1025x1025, larger than 1024x1024: every image becomes 224" in line for line in said.lines)


def test_the_side_of_a_registered_dataset_is_its_size(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.mini_csvs() | {"images/n0000000000000000.png": make.png(make.random_images(1, 9)[0])}
    folder = make.folder(tmp_path / "mini", files)
    assert import_images(folder, "mini-imagenet").images.shape[1:3] == (84, 84)


def test_published_pixels_are_never_resized(
    root: Path, tmp_path: Path, make: SimpleNamespace, pin: Callable[[str, Path], str]
) -> None:
    files = make.cifar10_files("folders")
    pin("cifar10", make.zip(tmp_path / "c.zip", files))
    first = next(iter(files))
    odd = make.zip(tmp_path / "odd.zip", files | {first: make.png(make.random_images(1, 31)[0])})
    with pytest.raises(TembedError, match=r"is 3[12]x3[12], but .* is 3[12]x3[12]: give `size`"):
        import_images(odd, "cifar10")


@pytest.mark.parametrize(
    ("fit", "left", "line"),
    [
        (
            "crop",
            200,
            "the centre crop kept 33 % of dog/long.png (30x10), the least of all; it cut off more than a fifth",
        ),
        ("pad", 128, "dog/long.png (30x10) fills 33 % of its square, the least of all; 1 of 2 images fill less than"),
        ("stretch", 0, "dog/long.png (30x10) was stretched by 3.00, the most of all; 1 of 2 images by more than 1.25"),
    ],
)
def test_an_oblong_image_is_fitted_as_asked_and_the_import_says_how(
    root: Path, tmp_path: Path, make: SimpleNamespace, fit: str, left: int, line: str
) -> None:
    """A light centre of a black image: cropped, only that is left; padded, grey borders are above and below."""
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 7:23] = 200
    files = {"cat/square.png": make.png(make.random_images(1, 30)[0]), "dog/long.png": make.png(wide)}
    said = Said()
    stored = import_images(make.folder(tmp_path / "p", files), "p", size=30, fit=fit, progress=said)  # type: ignore[arg-type]
    image = stored.images[1]
    assert image[0, 0].tolist() == [left] * 3
    assert image[15, 15].tolist() == [200] * 3
    if fit == "pad":
        assert (image[10:20] == wide).all()
        assert (image[:10] == 128).all()
        assert (image[20:] == 128).all()
    assert any(line in said for said in said.lines)
    assert stored.fit == fit


def test_an_unknown_fit_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="`fit` is 'zoom'; it must be one of crop, pad, stretch"):
        import_images(tmp_path, "x", fit="zoom")  # type: ignore[arg-type]


def test_every_kind_of_skipped_file_and_every_empty_class_gets_a_line(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.class_folders(PETS) | {
        "notes.txt": b"x",
        "cat/notes.TXT": b"x",
        "cat/README": b"x",
        "fox/only.psd": b"x",
        "cat/.hidden": b"x",
    }
    folder = make.folder(tmp_path / "pets", files)
    (folder / "bear").mkdir()
    (folder / ".git").mkdir()
    lines = [
        "skipped 1 file without an extension: cat/README",
        "skipped 1 .psd file: fox/only.psd",
        "skipped 2 .txt files, such as cat/notes.TXT",
        "class 'bear' has no images and is left out",
        "class 'fox' has no images and is left out",
    ]
    said = Said()
    assert import_images(folder, "pets", progress=said).manifest["notes"] == lines
    assert said.lines == [f"note: {line}" for line in lines]


@pytest.mark.parametrize(
    ("classes", "line"),
    [
        ({"cat": 6}, "there is only one class, 'cat': training needs at least 2 class folders"),
        (
            {"cat": 1, "dog": 1, "fox": 9},
            "class 'cat' has 1 image, too few to split .* (2 such classes): give it at least 4",
        ),
        ({"cat": 20, "dog": 4}, "the largest class has 20 images and the smallest 4; --balanced gives all classes"),
    ],
)
def test_an_import_says_what_training_on_an_odd_folder_needs(
    root: Path, tmp_path: Path, make: SimpleNamespace, classes: dict[str, int], line: str
) -> None:
    said = Said()
    import_images(make.folder(tmp_path / "pets", make.class_folders(classes)), "pets", progress=said)
    assert len(said.lines) == 1
    start, _, end = line.partition(".*")
    assert said.lines[0].startswith(f"note: {start}")
    assert end in said.lines[0]


def test_subset_folders_beside_other_folders_are_refused(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.class_folders(PETS, top=("train/", "test/", "extra/"))
    with pytest.raises(TembedError, match="has test and train folders and beside them extra: move it elsewhere"):
        import_images(make.folder(tmp_path / "pets", files), "pets")


def test_a_class_without_images_in_any_subset_gets_a_line(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    folder = make.folder(tmp_path / "pets", make.class_folders(PETS, top=("train/", "test/")))
    for name in ("train/bear", "test/bear", "test/cat/old"):
        (folder / name).mkdir()
    notes = import_images(folder, "pets").manifest["notes"]
    assert notes == ["class 'bear' has no images and is left out"]


@pytest.mark.parametrize(("size", "images"), [(None, 4), (4, 16), (32, 1)])
def test_a_batch_is_limited_by_its_decoded_bytes(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, size: int | None, images: int
) -> None:
    """Room for four images of 8x8: sixteen of 4x4, but only one of 32x32."""
    monkeypatch.setattr(decoding, "DECODED_BYTES", 4 * 3 * 8 * 8)
    with open_archive(make.folder(tmp_path / "pets", make.class_folders({"cat": 20, "dog": 20}))) as archive:
        found = [len(chunk.labels) for chunk in recognise(archive, Options(size)).chunks]
    assert max(found) == images
    assert sum(found) == 40


def test_jfif_files_are_images(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = {
        name.replace("dog", "fox").replace(".png", ".jfif"): data for name, data in make.class_folders(PETS).items()
    }
    assert import_images(make.folder(tmp_path / "pets", files), "pets").manifest["class_counts"] == [5, 6]


def test_heic_photographs_are_images_if_the_extra_is_there(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert images.reads_heif()
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :, 0] = 200
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "HEIF", quality=100)
    folder = make.folder(tmp_path / "pets", {"cat/1.HEIC": out.getvalue(), "dog/1.png": make.png(pixels)})
    stored = import_images(folder, "pets")
    assert np.abs(stored.images[0].astype(int) - pixels).mean() < 4
    monkeypatch.setattr(folders, "reads_heif", lambda: False)
    stored = import_images(folder, "without")
    assert stored.classes == ("dog",)
    assert stored.manifest["notes"][0] == ("skipped 1 .heic file: cat/1.HEIC; pip install 'tembed[heic]' to read HEIC")
    (folder / "dog" / "1.png").unlink()
    with pytest.raises(
        TembedError, match=r"no other images than cat/1\.HEIC and the like: pip install 'tembed\[heic\]'"
    ):
        import_images(folder, "only")


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
