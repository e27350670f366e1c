"""Random bytes and mutated files: every reader gives images or a clear error, nothing else."""

import io
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.datasets import entries

from tembed.common.errors import TembedError
from tembed.images.image_files import decode_batch
from tembed.lab.data.checking import check
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers.pickles import read_pickle

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Change = Callable[[bytes], bytes]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Flips, cuts, repeats or inserts bytes at positions relative to the length of the file."""
    edits = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["flip", "set", "cut", "drop", "repeat", "insert"]),
                st.floats(0, 1, exclude_max=True),
                st.binary(min_size=1, max_size=8),
            ),
            min_size=1,
            max_size=4,
        )
    )

    def apply(data: bytes) -> bytes:
        for kind, position, extra in edits:
            at = int(position * len(data))
            if kind in ("flip", "set") and data:
                new = data[at] ^ (1 << extra[0] % 8) if kind == "flip" else extra[0]
                data = data[:at] + bytes([new]) + data[at + 1 :]
            elif kind == "cut":
                data = data[:at]
            elif kind == "drop":
                data = data[:at] + data[at + len(extra) :]
            elif kind == "repeat":
                data = data[:at] + data[max(0, at - 600) :]
            else:
                data = data[:at] + extra + data[at:]
        return data

    return apply


def attempt(path: Path, skip_broken: bool = False) -> None:
    """Import and check; the only error allowed is a TembedError of one line."""
    with tempfile.TemporaryDirectory() as store:
        if said := complaint(lambda: import_images(path, "x", skip_broken=skip_broken, root=store)):
            assert path.name in said
            assert "\n" not in said
            assert not entries(Path(store))
        else:
            said = complaint(lambda: check("x", root=store))
            assert not said or "too few" in said


def complaint(work: Callable[[], object]) -> str:
    """The message of a TembedError, or nothing; any other error fails the test."""
    try:
        work()
    except TembedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("ending", [".zip", ".tar", ".tgz", ".pkl", ""])
@given(data=st.binary(max_size=2000))
@few
def test_random_bytes(tmp_path: Path, ending: str, data: bytes) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(data)
    attempt(path)


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\x00"])
@given(data=st.binary(max_size=500))
@few
def test_random_bytes_after_a_known_start(tmp_path: Path, start: bytes, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(start + data)
    attempt(path)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@given(change=changes(), skip=st.booleans())
@few
def test_mutated_archives(tmp_path: Path, make: SimpleNamespace, kind: str, change: Change, skip: bool) -> None:
    files = make.class_folders({"cat": 2, "dog": 2}, top=("train/", "test/"))
    path = tmp_path / f"pets.{kind}"
    if kind == "zip":
        make.zip(path, files)
    else:
        make.tar(path, files, f"w:{kind[4:]}")
    path.write_bytes(change(path.read_bytes()))
    attempt(path, skip)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pickles", "binary", "pngs"])
@given(change=changes(), data=st.data())
@few
def test_mutated_cifar_files(
    tmp_path: Path, make: SimpleNamespace, form: str, change: Change, data: st.DataObject
) -> None:
    files = make.cifar10_files(form)
    name = data.draw(st.sampled_from(sorted(files)))
    files[name] = change(files[name])
    attempt(make.zip(tmp_path / "c.zip", files))


@pytest.mark.parametrize("form", ["pickles", "binary"])
@given(change=changes())
@settings(few, max_examples=10)
def test_mutated_cifar100_files(tmp_path: Path, make: SimpleNamespace, form: str, change: Change) -> None:
    files = make.cifar100_files(form)
    name = next(name for name in files if "test" in name)
    files[name] = change(files[name])
    attempt(make.zip(tmp_path / "c.zip", files))


@given(change=changes(), data=st.data(), skip=st.booleans())
@few
def test_mutated_csvs(tmp_path: Path, make: SimpleNamespace, change: Change, data: st.DataObject, skip: bool) -> None:
    files = make.mini_csvs()
    name = data.draw(st.sampled_from(["train.csv", "val.csv", "test.csv"]))
    files[name] = change(files[name])
    attempt(make.zip(tmp_path / "m.zip", files), skip)


@given(change=changes(), protocol=st.integers(0, 5))
@few
def test_mutated_caches(tmp_path: Path, make: SimpleNamespace, change: Change, protocol: int) -> None:
    files = make.mini_caches(each=1, protocol=protocol)
    name = "mini-imagenet-cache-val.pkl"
    attempt(make.zip(tmp_path / "m.zip", files | {name: change(files[name])}))


SMALL = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "names": [b"a", "b", 2.5]}


@given(change=changes(), protocol=st.integers(0, 5))
@many
def test_mutated_pickles(change: Change, protocol: int) -> None:
    """Small pickles, so that most mutations hit the program and not the pixels."""
    unpickle(change(pickle.dumps(SMALL, protocol)))


@given(st.binary(max_size=200), st.integers(0, 5))
@many
def test_random_pickles(data: bytes, protocol: int) -> None:
    unpickle(b"\x80" + bytes([protocol]) + data)


def unpickle(data: bytes) -> None:
    said = complaint(lambda: read_pickle(io.BytesIO(data), len(data), "file.pkl"))
    assert not said or said.startswith("file.pkl")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
@given(change=changes(), size=st.sampled_from([None, 4]))
@settings(many, max_examples=120)
def test_mutated_images(kind: str, change: Change, size: int | None) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    options = {"exif": exif} if kind in ("PNG", "JPEG", "WEBP", "TIFF") else {}
    Image.fromarray(pixels).save(out, kind, **options)
    (found,) = decode_batch([change(out.getvalue())], size)
    assert isinstance(found, str) or (found.dtype == np.uint8 and found.shape[2] == 3)


@given(st.binary(max_size=300))
@many
def test_random_images(data: bytes) -> None:
    (found,) = decode_batch([data], None)
    assert isinstance(found, str) or found.shape[2] == 3


@pytest.mark.slow
@pytest.mark.parametrize("file", ["manifest.json", "labels.npy", "images.npy"])
@given(change=changes())
@few
def test_mutated_stores(tmp_path: Path, make: SimpleNamespace, file: str, change: Change) -> None:
    with tempfile.TemporaryDirectory() as store:
        folder = make.folder(tmp_path / "pets", make.class_folders({"cat": 5}))
        path = import_images(folder, "x", root=store).folder / file
        data = path.read_bytes()
        path.write_bytes(change(data))
        if said := complaint(lambda: check("x", root=store)):
            assert str(Path(store) / "x") in said
        elif file != "manifest.json":  # some bytes of a header or a manifest do not matter, but every pixel does
            assert path.read_bytes()[128:][: len(data) - 128] == data[128:]
