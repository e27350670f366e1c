"""A dataset of 200 GB, far larger than memory and disk: a sparse file, of which only a few images are written."""

import os
from pathlib import Path

import numpy as np
import pytest
from support.kills import fingerprint
from support.progress import Crash, CrashAfter, Said

from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.lab.data.npy import array_sha256, header, write_array
from tembed.lab.data.store import FORMAT, identity
from tembed.lab.data.subsets import CODES
from tembed.lab.data.sums import image_sums
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe

COUNT, SIDE, CLASSES = 64_000, 1024, ("cat", "dog")
HELD_OUT, WRITTEN = 2, 2
RECIPE = Recipe(
    "tembed:rn20@stage2",
    "huge",
    init="random",
    image_size=16,
    crops="resized",
    epochs=1,
    batch_size=2,
    train_images=4,
)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pixels of a stored dataset, in a file that takes only a few megabytes of the disk."""
    root = tmp_path / "store"
    monkeypatch.setenv("TEMBED_DATA", str(root))
    folder, shape = root / "huge", (COUNT, SIDE, SIDE, 3)
    folder.mkdir(parents=True)
    sums = np.zeros((COUNT, 6), np.int64)
    with (folder / "images.npy").open("wb") as file:
        file.write(header(shape))
        pixels = np.random.default_rng(0).integers(0, 256, (WRITTEN, *shape[1:]), np.uint8)
        sums[:WRITTEN] = image_sums(pixels)
        file.write(pixels.tobytes())
        file.truncate(file.tell() + (COUNT - WRITTEN) * 3 * SIDE * SIDE)
    origin = np.full(COUNT, CODES["train"], np.uint8)
    origin[-HELD_OUT:], origin[-2 * HELD_OUT : -HELD_OUT] = CODES["test"], CODES["val"]
    arrays = {"labels": np.arange(COUNT) % 2, "origin": origin}
    for key, array in (arrays | {"sums": sums}).items():
        write_array(folder / f"{key}.npy", array)
    files = {"images": "0" * 64} | {key: array_sha256(array) for key, array in arrays.items()}
    manifest = {
        "format": FORMAT,
        "name": "huge",
        "source": {},
        "classes": CLASSES,
        "class_counts": [COUNT // 2] * 2,
        "parts": [],
        "shapes": {"images": shape, "labels": [COUNT], "origin": [COUNT]},
        "files": files,
        "sums": array_sha256(sums),
        "sha256": identity(CLASSES, shape, files),
    }
    write_json(folder / "manifest.json", manifest)
    return folder / "images.npy"


def test_a_file_of_200_gigabytes_is_opened_trained_on_and_resumed(images: Path, tmp_path: Path) -> None:
    found = os.stat(images)
    assert found.st_size > 200e9
    assert found.st_blocks * 512 < 1e8
    said = Said()
    whole = train(RECIPE, tmp_path / "whole", progress=said)
    assert any("(201 GB)" in line and "`tembed data check huge`" in line for line in said.lines)
    with pytest.raises(Crash):
        train(RECIPE, tmp_path / "run", progress=CrashAfter(2), checkpoint_seconds=0)
    train(RECIPE, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(whole.folder)
    assert os.stat(images).st_blocks == found.st_blocks


def test_another_large_file_is_noticed_by_its_images(images: Path, tmp_path: Path) -> None:
    with images.open("r+b") as file:
        file.seek(-SIDE, os.SEEK_END)
        file.write(b"!")
    with pytest.raises(TembedError, match=r"images\.npy has changed since it was stored"):
        train(RECIPE, tmp_path / "run")
