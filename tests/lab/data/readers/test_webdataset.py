"""Shards of a WebDataset, and tars of class folders, are imported as if they were unpacked."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers.shards import expand_braces
from tembed.lab.data.subsets import CODES, UNKNOWN

LABELS = [3, 0, 7, 3, 0, 7, 7, 3]


@pytest.fixture
def shards(tmp_path: Path, make: SimpleNamespace) -> Callable[..., Path]:
    """Makes shards of four samples each; ``named``: the name of a shard, and ``label``: the files beside an image."""

    def made(label: Callable[[int], dict[str, bytes]], named: str = "pets-{:04}.tar", count: int = 2) -> Path:
        folder = tmp_path / "shards"
        for shard in range(count):
            files = {}
            for k in range(4 * shard, 4 * shard + 4):
                files[f"{k:05}.png"] = make.png(make.random_images(1, seed=k)[0])
                files |= {f"{k:05}.{end}": data for end, data in label(LABELS[k]).items()}
            path = folder / named.format(shard)
            path.parent.mkdir(parents=True, exist_ok=True)
            make.tar(path, files)
        return folder

    return made


def as_cls(label: int) -> dict[str, bytes]:
    return {"cls": f"{label}\n".encode(), "seg.png": b"", "txt": b"a caption"}


def check_pixels(images: np.ndarray, make: SimpleNamespace) -> None:
    assert len(images) == 8
    for k, image in enumerate(images):
        assert (image == make.random_images(1, seed=k)[0]).all()


@pytest.mark.parametrize("place", ["folder", "braces"])
def test_numbered_classes(root: Path, shards: Callable[..., Path], make: SimpleNamespace, place: str) -> None:
    path = shards(as_cls)
    stored = import_images(path if place == "folder" else path / "pets-{0000..0001}.tar", "pets")
    assert stored.manifest["source"]["layout"] == "WebDataset"
    assert stored.classes == ("0", "3", "7")
    assert stored.labels.tolist() == [{0: 0, 3: 1, 7: 2}[label] for label in LABELS]
    check_pixels(stored.images, make)
    assert [file.name for file in stored.files() or ()][:2] == ["pets-0000/00000.png", "pets-0000/00001.png"]
    assert stored.manifest["notes"] == [
        "skipped 16 files that are neither an image nor its class, such as pets-0000/00000.seg.png"
    ]


@pytest.mark.parametrize(
    "label",
    [
        lambda k: {"json": json.dumps({"label": f"class {k}", "width": 8}).encode()},
        lambda k: {"cls": f"class {k}".encode(), "json": b"not read"},
    ],
)
def test_named_classes(root: Path, shards: Callable[..., Path], label: Callable[[int], dict[str, bytes]]) -> None:
    stored = import_images(shards(label), "pets")
    assert stored.classes == ("class 0", "class 3", "class 7")
    assert stored.labels.tolist() == [{0: 0, 3: 1, 7: 2}[label] for label in LABELS]


def test_a_list_of_class_names_and_shards_that_name_their_subset(root: Path, shards: Callable[..., Path]) -> None:
    folder = shards(as_cls, "train/{}.tar")
    (folder / "test").mkdir()
    (folder / "train" / "1.tar").rename(folder / "test" / "0.tar")
    (folder / "classnames.txt").write_text("\n".join("abcdefgh"))
    stored = import_images(folder, "pets")
    assert stored.classes == ("a", "d", "h")
    assert stored.subsets.tolist() == [CODES["test"]] * 4 + [CODES["train"]] * 4
    (folder / "classnames.txt").write_text("a\nb")
    with pytest.raises(TembedError, match=r"an image is of class 7, but classnames\.txt has 2 lines"):
        import_images(folder, "more")


def test_the_subset_may_be_in_the_middle_of_the_name(root: Path, shards: Callable[..., Path]) -> None:
    folder = shards(as_cls, "pets-train-{}.tar")
    (folder / "pets-train-1.tar").rename(folder / "pets-validation-1.tar")
    assert import_images(folder, "pets").subsets.tolist() == [CODES["train"]] * 4 + [CODES["val"]] * 4
    (folder / "pets-validation-1.tar").rename(folder / "pets-more-1.tar")
    assert set(import_images(folder, "more").subsets.tolist()) == {UNKNOWN}


def test_one_tar_is_enough(root: Path, shards: Callable[..., Path]) -> None:
    path = shards(as_cls, count=1) / "pets-0000.tar"
    assert import_images(path, "pets").labels.tolist() == [1, 0, 2, 1]


def test_a_tar_for_each_class(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    """ImageNet is published in this form."""
    for name in ("cat", "dog"):
        files = {f"{number}.png": make.png(pixels) for number, pixels in enumerate(make.random_images(3))}
        make.tar(make.folder(tmp_path / "tars", {"readme.txt": b"hello"}) / f"{name}.tar", files)
    stored = import_images(tmp_path / "tars", "pets")
    assert stored.manifest["source"]["layout"] == "class folders"
    assert stored.classes == ("cat", "dog")
    assert stored.labels.tolist() == [0] * 3 + [1] * 3


def test_annotations_beside_images_in_class_folders_are_no_classes(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    files = make.class_folders({"cat": 2, "dog": 2}) | {"cat/000.json": b'{"label": 5}'}
    assert import_images(make.folder(tmp_path / "pets", files), "pets").classes == ("cat", "dog")


def test_a_sample_without_a_class_is_refused_or_left_out(
    root: Path, shards: Callable[..., Path], make: SimpleNamespace
) -> None:
    folder = shards(as_cls)
    make.tar(folder / "pets-0002.tar", {"x.png": make.png(make.random_images(1)[0])})
    with pytest.raises(TembedError, match=r"pets-0002/x\.png has no \.cls or \.json beside it \(1 such images\)"):
        import_images(folder, "pets")
    stored = import_images(folder, "pets", skip_broken=True)
    assert stored.manifest["left_out"] == ["pets-0002/x.png: it has no .cls or .json beside it"]
    assert len(stored.labels) == 8


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"json": b"[1]"}, "does not name a class"),
        ({"json": b'{"label": [1]}'}, "does not name a class"),
        ({"json": b"{"}, "cannot be read"),
        ({"json": b"3"}, "cannot be read"),
        ({"cls": b" "}, "does not name a class"),
        ({"cls": b"a\nb"}, "does not name a class"),
        ({"cls": b"\xff"}, "cannot be read"),
    ],
)
def test_a_class_that_cannot_be_read_is_named(
    root: Path, shards: Callable[..., Path], label: dict[str, bytes], said: str
) -> None:
    with pytest.raises(TembedError, match=rf"pets-0000/00000\.(cls|json) {said}"):
        import_images(shards(lambda _: label), "pets")


def test_missing_and_compressed_shards_are_named(
    root: Path, shards: Callable[..., Path], make: SimpleNamespace
) -> None:
    folder = shards(as_cls)
    with pytest.raises(TembedError, match=r"pets-0002\.tar does not exist"):
        import_images(folder / "pets-{0000..0002}.tar", "pets")
    make.tar(folder / "pets-0002.tar", {"x.cls": b"1"}, "w:gz")
    with pytest.raises(TembedError, match=r"pets-0002\.tar is compressed"):
        import_images(folder, "pets")


def test_an_import_of_shards_goes_on_after_an_interruption(
    root: Path, shards: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tembed.lab.data.pool_writer.SAVE_SECONDS", 0)
    monkeypatch.setattr("tembed.lab.data.readers.decoding.BATCH_IMAGES", 2)
    folder = shards(as_cls)
    damaged = bytearray((folder / "pets-0001.tar").read_bytes())
    start = damaged.rindex(b"\x89PNG")
    damaged[start : start + 4] = b"????"
    (folder / "pets-0001.tar").write_bytes(damaged)
    with pytest.raises(TembedError, match=r"pets-0001/00007\.png"):
        import_images(folder, "pets")
    said = Said()
    stored = import_images(folder, "pets", skip_broken=True, progress=said)
    assert any("6 of 8 files are already decoded" in line for line in said.lines)
    assert len(stored.labels) == 7


def test_braces() -> None:
    assert expand_braces("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert expand_braces("{a,b}-{0..1}") == ["a-0", "a-1", "b-0", "b-1"]
    assert expand_braces("{a}.tar") == ["{a}.tar"]
    with pytest.raises(TembedError, match="names more than"):
        expand_braces("{0..99999999999}")
