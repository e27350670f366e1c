"""Small files that ask for much: each is refused in one line, with little memory and without a crash."""

import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images

MEGABYTES = 400  # on top of what Python and its libraries have mapped

IMPORT = """
import resource, sys
from tembed.lab.data.importing import import_images
from tembed.common.errors import TembedError

pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[1]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[3:]:
    try:
        import_images(path, "bomb", root=sys.argv[2])
    except TembedError as error:
        print(error, flush=True)
    else:
        print("imported", flush=True)
"""


def import_with_little_memory(store: Path, *paths: Path) -> list[str]:
    """What the import of each file says, one after the other in one process."""
    arguments = [str(MEGABYTES), str(store), *map(str, paths)]
    done = subprocess.run([sys.executable, "-c", IMPORT, *arguments], capture_output=True, text=True, timeout=240)
    said = done.stdout.splitlines()
    assert (done.returncode, len(said)) == (0, len(paths)), f"{done.returncode} after {said}: {done.stderr[-2000:]}"
    assert not [line for line in said if "MemoryError" in line]
    return said


DEEP = b"\x80\x04)" + b"\x85" * 300_000  # () in a tuple in a tuple ...
TEXT = b"\x80\x04X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"\x94"
ENCODE = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"

BOMBS = {
    "a tuple as a key": (b"\x80\x04}" + DEEP[2:] + b"K\x01s.", "a dictionary key of type tuple"),
    "a tuple as one of several keys": (b"\x80\x04}(" + DEEP[2:] + b"K\x01u.", "a dictionary key of type tuple"),
    "a tuple as a key of a literal": (b"\x80\x04(" + DEEP[2:] + b"K\x01d.", "a dictionary key of type tuple"),
    "a tuple in a frozen set": (b"\x80\x04(" + DEEP[2:] + b"\x91.", "a set"),
    "a tuple in a set": (b"\x80\x04\x8f(" + DEEP[2:] + b"\x90.", "a set"),
    "a tuple as the type of an array": (b"\x80\x04cnumpy\ndtype\n" + DEEP[2:] + b"\x85R.", "an array of"),
    "a deep value": (b"\x80\x04}K\x01" + DEEP[2:] + b"s.", "nested more than"),
    "a long byte array": (b"\x80\x05\x96" + struct.pack("<Q", 3 << 30) + b".", "ends too early"),
    "a text encoded again and again": (TEXT + ENCODE * 3000 + b".", "more bytes than"),
    "empty dictionaries": (b"\x80\x04" + b"}" * 5_000_000 + b".", "more than 2,000,000 steps"),
    "marks": (b"\x80\x04" + b"(" * 5_000_000 + b".", "more than 2,000,000 steps"),
    "memo entries": (b"\x80\x04N" + b"\x94" * 5_000_000 + b".", "more than 2,000,000 steps"),
    "one long key in many dictionaries": (
        b"\x80\x04B" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"\x94("
        + b"}h\x00K\x01s" * 3000 + b"l.",
        "a dictionary key of 1048576",
    ),
}  # fmt: skip


@pytest.mark.process
def test_a_small_pickle_cannot_take_much_memory_or_crash(tmp_path: Path) -> None:
    paths = []
    for number, (bomb, _) in enumerate(BOMBS.values()):
        paths.append(tmp_path / f"{number}.zip")
        with zipfile.ZipFile(paths[-1], "w", zipfile.ZIP_DEFLATED) as archive:
            for file in (*(f"data_batch_{batch}" for batch in range(1, 6)), "test_batch"):
                archive.writestr(file, bomb if file == "data_batch_1" else b"")
    said = import_with_little_memory(tmp_path / "store", *paths)
    for (name, (_, reason)), line in zip(BOMBS.items(), said, strict=True):
        assert reason in line, name


@pytest.mark.process
def test_large_images_are_not_decoded_before_their_size_is_known(tmp_path: Path) -> None:
    """A file of a few kilobytes for each image: 24 of them take 1.2 GB of pixels at their own size."""
    out = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(out, "WEBP", lossless=True, method=0)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(24):
            archive.writestr(f"cat/{number}.webp", out.getvalue())
    assert import_with_little_memory(tmp_path / "store", path) == ["imported"]
    assert np.load(tmp_path / "store" / "bomb" / "images.npy", mmap_mode="r").shape == (24, 224, 224, 3)


def test_an_overlong_table_is_not_read(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    """A table of empty rows compresses a thousandfold, and each row would become an object."""
    files = make.mini_csvs()
    files["train.csv"] += b"\n" * (17 << 20)
    path = tmp_path / "mini.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert path.stat().st_size < 100_000
    with pytest.raises(TembedError, match=r"mini\.zip: train\.csv has [\d,]+ bytes, more than the 16,777,216 that are"):
        import_images(path, "mini")


def test_an_overlong_list_of_labels_is_not_read(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    files = make.cifar10_files("pngs")
    files["package/test_lables.json"] = b"[" + b"0," * (1 << 20) + b"0]"
    with pytest.raises(
        TembedError, match=r"test_lables\.json has 2,097,155 bytes, more than the 1,048,576 that are read"
    ):
        import_images(make.zip(tmp_path / "c.zip", files), "c")
