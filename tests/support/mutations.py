"""Seeded mutations of every kind of file that the package reads, and the function that a command reads it with.

`try_file` judges one mutated file: it is read as before, read as something else that is legal, or refused in one line
that names it. Anything else (a traceback, a hang, too much memory) raises. The test suite tries a share of them
(tests/test_mutated_files.py), and tests/campaign/mutated_files.py tries thousands.
"""

import contextlib
import io
import json
import math
import os
import random
import re
import resource
import signal
import struct
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from support.clocks import without_clock
from support.datasets import store_world
from support.disk import lay_out, snapshot
from support.grids import MINE
from support.layouts import cifar10_files, class_folders, mini_caches, mini_csvs, write_folder, write_tar, write_zip
from tembed.cli.cmd_train import read_recipe
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.images.image_files import decode_batch
from tembed.lab.analysis.sampling import read_groups
from tembed.lab.data.checking import check
from tembed.lab.data.importing import import_images
from tembed.lab.data.store import open_stored
from tembed.lab.report.grid_report import write_grid_report
from tembed.lab.training.feature_cache import Entry
from tembed.lab.training.initial_weights import read_weights
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, save_summary
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.hub import save_pretrained
from tembed.trained.predicting import predict
from tembed.trained.weights_file import load

CPU_SECONDS = 10.0
"""Time of the processor for one small file, after which it counts as a hang."""
MEMORY = 3 << 30
"""Bytes that one small file may take."""


# --- mutations

ODD: tuple[Any, ...] = (
    *(None, True, "", "x", "\x1b[2J", "nan", "../..", [], {}, [[]], {"a": 1}, [None], 0, -1, 1, 0.5, 2**31, 2**63),
    *(10**400, -(2**70), 1e308, -1e308, math.nan, math.inf, "9" * 5000, ["x"] * 300, "a" * 70_000),
)
"""Values that may stand in JSON where another one is expected."""
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
NUMBERS = (b"0", b"-1", b"1e999", b"nan", b"99999999999999999999", b"9" * 5000, b"0.5", b"true", b'"x"', b"[]")
SIZES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000)


def mutate_bytes(data: bytes, dice: random.Random, other: bytes) -> bytes:
    """One to four edits anywhere: bits, spans, numbers, lengths, the end, or the header of ``other``."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(data) + 1) if dice.random() < 0.5 else min(len(data), int(dice.expovariate(1 / 60)))
        span = dice.choice((1, 2, 4, 16, 512, 5000))
        match dice.choice(("flip", "flip", "set", "cut", "drop", "repeat", "insert", "number", "size", "swap", "zero")):
            case "flip" if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
            case "set":
                data = data[:at] + dice.choice((b"\0", b"\xff", b"\n", b"{", b"[", b"-")) + data[at + 1 :]
            case "cut":
                data = data[:at]
            case "drop":
                data = data[:at] + data[at + span :]
            case "repeat":
                data = data[: at + span] + data[at:]
            case "insert":
                data = data[:at] + dice.randbytes(span) + data[at:]
            case "number":
                if found := list(NUMBER.finditer(data[:20_000])):
                    chosen = dice.choice(found)
                    data = data[: chosen.start()] + dice.choice(NUMBERS) + data[chosen.end() :]
            case "size":
                form = dice.choice(("<H", ">H", "<I", ">I", "<Q"))
                size = struct.pack(form, dice.choice(SIZES) % 256 ** struct.calcsize(form))
                data = data[:at] + size + data[at + len(size) :]
            case "swap":
                data = other[:span] + data[span:]
            case "zero":
                data = data[:at] + bytes(min(span, len(data) - at)) + data[at + span :]
    return data


def mutate_json(value: Any, dice: random.Random) -> Any:
    """Replace, remove, repeat or rename something inside a JSON value."""
    spots: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            spots.append((node, key))
            collect(node[key])

    value = json.loads(json.dumps(value))
    collect(value)
    if not spots or dice.random() < 0.05:
        return dice.choice(ODD)
    node, key = dice.choice(spots)
    match dice.choice(("replace", "replace", "replace", "wrap", "remove", "add")):
        case "replace":
            node[key] = dice.choice(ODD)
        case "wrap":
            node[key] = [node[key]]
        case "remove":
            del node[key]
        case "add" if isinstance(node, dict):
            node["unknown"] = dice.choice(ODD)
        case "add":
            node.append(dice.choice(ODD))
    return value


# --- the kinds of files


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    ``make`` writes the originals into a folder, and ``read`` reads them as a command would. ``file`` is mutated.
    ``checked``: the file has a checksum, so it is either refused or read as before. ``content`` is how its content is
    mutated as plain values: "json", "lines" of JSON, "toml", or "record" (of a checksummed file, signed again).
    """

    name: str
    file: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    checked: bool = False
    content: str = ""


RECIPE = Recipe("speck", "dots", epochs=1, batch_size=33)


def command(*line: str | Path) -> int:
    """Run a command without its output. Raises `TembedError` with what it said if it refused its input."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([str(word) for word in line])
    if code:
        lines = said.getvalue().strip().splitlines()
        raise TembedError(next((each for each in lines if "error:" in each or "cannot" in each), lines[-1]))
    return code


def make_run(folder: Path) -> None:
    store_world(folder / "data", "dots", 100, 8)
    train(RECIPE, folder / "run", root=folder / "data")
    Image.new("RGB", (8, 8), "red").save(folder / "red.png")


def make_stopped(folder: Path) -> None:
    """A run whose test is left, with one checkpoint."""
    make_run(folder)
    (folder / "run" / "result.json").unlink()


def make_started(folder: Path) -> None:
    """A run that starts from other weights."""
    make_run(folder)
    recipe = Recipe("speck", "dots", epochs=2, batch_size=33, init=str(folder / "run" / "best.safetensors"))
    train(recipe, folder / "next", root=folder / "data")
    (folder / "next" / "result.json").unlink()


def make_hub(folder: Path) -> None:
    make_run(folder)
    save_pretrained(load(folder / "run"), folder / "hub")


def make_summary(folder: Path) -> None:
    make_run(folder)
    save_summary(Run(folder / "run"), folder).rename(folder / "summary.json")


def make_state_dict(folder: Path) -> None:
    torch.save({"state_dict": {"conv.weight": torch.ones(2, 3), "conv.bias": torch.ones(2)}}, folder / "net.pt")


def make_old_state_dict(folder: Path) -> None:
    weights = {"conv.weight": torch.ones(2, 3), "conv.bias": torch.ones(2)}
    torch.save(weights, folder / "net.pt", _use_new_zipfile_serialization=False)


def make_pets(folder: Path) -> None:
    write_folder(folder / "pictures", class_folders({"cat": 5, "dog": 5}))


def make_store(folder: Path) -> None:
    make_pets(folder)
    stored = import_images(folder / "pictures", "pets", root=folder / "store")
    known = {key: [1, 2, 3, 4, digest] for key, digest in stored.manifest["files"].items()}
    (stored.folder / "verified.json").write_text(json.dumps(known))


def make_groups(folder: Path) -> None:
    (folder / "groups.json").write_text(json.dumps({"animals": ["cat", "dog"], "vehicles": ["car"]}))


def make_grid(folder: Path) -> None:
    store_world(folder / "data", "tiny", 40, 8)
    (folder / "mine.toml").write_text(MINE)


def make_cache(folder: Path) -> None:
    entry = Entry(folder / "cache" / "entry")
    with entry.opened({"model": "speck", "data": "dots"}, lambda: None), entry.writing("train", (2, 3)) as array:
        array[:] = 1


def make_archive(name: str, mode: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        files = class_folders({"cat": 2, "dog": 2})
        write_tar(folder / name, files, mode) if mode else write_zip(folder / name, files)

    return make


def make_files(files: Callable[[], dict[str, bytes]]) -> Callable[[Path], None]:
    return lambda folder: write_folder(folder / "source", files()) and None


def make_picture(form: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 6
        options: dict[str, Any] = {"exif": exif} if form in ("PNG", "JPEG", "WEBP", "TIFF") else {}
        frames = [Image.fromarray(pixels), Image.fromarray(255 - pixels)]
        if form in ("GIF", "TIFF", "WEBP"):
            options |= {"save_all": True, "append_images": frames[1:]}
        frames[0].save(folder / "picture", "JPEG" if form == "JPEG" else form, **options)

    return make


def make_ascii_picture(folder: Path) -> None:
    (folder / "picture").write_bytes(b"P3\n# made here\n4 2\n255\n" + b"1 2 3  4 5 6  " * 4)


def read_predictions(*source: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        (found,) = predict(folder.joinpath(*source), folder / "red.png")
        return found.probabilities.tolist()

    return read


def read_resumed(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        run = Run(folder / name)
        finished = train(run.recipe, run.folder, root=folder / "data")
        assert finished.result is not None
        return without_clock(finished.result)

    return read


def read_run(folder: Path) -> Any:
    """`tembed runs --save`, `tembed report` and `tembed predict`."""
    command("runs", folder / "run", "--save", folder / "saved")
    read = write_grid_report([folder / "run"], folder / "report")
    if read.excluded:
        raise TembedError(read.excluded[0])
    return read_predictions("run")(folder)


def read_given_recipe(folder: Path) -> Any:
    path = folder / "run" / "recipe.json"
    recipe = read_recipe(path)
    try:
        return recipe.complete().to_json()
    except TembedError as error:  # about settings that do not go together
        raise TembedError(f"{path}: {error}") from None


def read_summary(folder: Path) -> Any:
    read = write_grid_report([folder / "summary.json"], folder / "report")
    if read.excluded:
        raise TembedError(read.excluded[0])
    return None


def read_grid(folder: Path) -> Any:
    os.environ["TEMBED_DATA"] = str(folder / "data")
    return command("grid", folder / "mine.toml", "--list", "--out", folder / "runs")


def read_cache(folder: Path) -> Any:
    entry = Entry(folder / "cache" / "entry")
    assert entry.title
    found = entry.read("train", (2, 3))
    if isinstance(found, str):
        raise TembedError(found)
    return found.tobytes()


def read_stored(folder: Path) -> Any:
    stored = open_stored(folder / "store", "pets")
    stored.files()
    check("pets", root=folder / "store")
    return stored.sha256, stored.images.tobytes(), stored.labels.tobytes(), stored.manifest["classes"]


def read_import(source: str, skip_broken: bool = False) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        stored = import_images(folder / source, "x", skip_broken=skip_broken, root=folder / "store")
        return stored.sha256

    return read


def read_picture(folder: Path) -> Any:
    (found,) = decode_batch([(folder / "picture").read_bytes()], 8)
    if isinstance(found, str):
        raise TembedError(f"{folder / 'picture'}: {found}")
    assert found.shape == (8, 8, 3)
    return found.tobytes()


def read_init(folder: Path) -> Any:
    return checksum(read_weights(folder / "net.pt")[0])


def _kinds() -> Iterator[Kind]:
    best, newest = "run/best.safetensors", "run/checkpoints/newest.safetensors"
    yield Kind("weights", best, make_run, read_predictions("run"), checked=True)
    yield Kind("weights, signed again", best, make_run, read_predictions("run"), content="record")
    yield Kind("checkpoint", newest, make_stopped, read_resumed("run"), checked=True)
    yield Kind("checkpoint, signed again", newest, make_stopped, read_resumed("run"), content="record")
    yield Kind("hub weights", "hub/model.safetensors", make_hub, read_predictions("hub"), checked=True)
    for kind in (
        Kind("hub config", "hub/config.json", make_hub, read_predictions("hub")),
        Kind("summary", "summary.json", make_summary, read_summary),
        Kind("network.json", "next/network.json", make_started, read_resumed("next")),
        Kind("result.json", "run/result.json", make_run, read_run),
        Kind("recipe.json", "run/recipe.json", make_run, read_run),
        Kind("environment.json", "run/environment.json", make_run, read_run),
        Kind("environment.json of a stopped run", "run/environment.json", make_stopped, read_resumed("run")),
        Kind("metrics.jsonl", "run/metrics.jsonl", make_run, read_run),
        Kind("train --recipe", "run/recipe.json", make_run, read_given_recipe),
        Kind("groups", "groups.json", make_groups, lambda folder: read_groups(folder / "groups.json")),
        Kind("manifest", "store/pets/manifest.json", make_store, read_stored),
        Kind("verified.json", "store/pets/verified.json", make_store, read_stored, checked=True),
    ):
        yield kind
        yield replace(kind, name=f"{kind.name}, values", content="lines" if kind.file.endswith("jsonl") else "json")
    for name in ("images.npy", "labels.npy", "origin.npy", "files.sha256"):
        yield Kind(name, f"store/pets/{name}", make_store, read_stored, checked=True)
    yield Kind("grid file", "mine.toml", make_grid, read_grid)
    yield Kind("grid file, values", "mine.toml", make_grid, read_grid, content="toml")
    for name in ("about.json", "train.npy", "train.json"):
        yield Kind(f"cached features: {name}", f"cache/entry/{name}", make_cache, read_cache, checked=True)
    yield Kind("state dict", "net.pt", make_state_dict, read_init)
    yield Kind("old state dict", "net.pt", make_old_state_dict, read_init)
    for ending, mode in (("zip", ""), ("tar", "w"), ("tar.gz", "w:gz"), ("tar.xz", "w:xz")):
        file = f"pets.{ending}"
        yield Kind(ending, file, make_archive(file, mode), read_import(file))
    for form, file in (
        ("pickles", "cifar-10-batches-py/data_batch_2"),
        ("binary", "cifar-10-batches-bin/test_batch.bin"),
        ("pngs", "package/data_batch_3.png"),
        ("pngs", "package/train_lables.json"),
    ):
        make = make_files(partial(cifar10_files, form))
        yield Kind(f"CIFAR {form}: {Path(file).name}", f"source/{file}", make, read_import("source"))
    cache = "mini-imagenet-cache-val.pkl"
    yield Kind("Mini-ImageNet cache", f"source/{cache}", make_files(partial(mini_caches, 1)), read_import("source"))
    yield Kind("Mini-ImageNet table", "source/train.csv", make_files(mini_csvs), read_import("source"))
    yield Kind("one of many pictures", "pictures/cat/000.png", make_pets, read_import("pictures", skip_broken=True))
    for form in ("PNG", "JPEG", "PPM", "GIF", "WEBP", "BMP", "TIFF"):
        yield Kind(form, "picture", make_picture(form), read_picture)
    yield Kind("PPM in ASCII", "picture", make_ascii_picture, read_picture)


KINDS = {kind.name: kind for kind in _kinds()}


# --- judging


class Hang(BaseException):
    """A file took too long."""


class Files:
    """The originals of every kind, in a folder of their own, and how they are read."""

    def __init__(self, home: Path):
        self.home = home
        self.originals: dict[str, tuple[dict[str, bytes | None], Any]] = {}
        self.made: dict[Any, dict[str, bytes | None]] = {}

    def original(self, kind: Kind) -> tuple[dict[str, bytes | None], Any]:
        """The folder of a kind, and what is read from it."""
        folder = self.home / "files"
        if kind.name not in self.originals:
            if kind.make not in self.made:
                lay_out({}, folder)
                kind.make(folder)
                self.made[kind.make] = snapshot(folder)
            lay_out(self.made[kind.make], folder)
            value = kind.read(folder)
            self.originals[kind.name] = self.made[kind.make], value
        return self.originals[kind.name]

    def mutated(self, kind: Kind, dice: random.Random) -> bytes:
        """A mutation of the kind's file."""
        files, _ = self.original(kind)
        content = files[kind.file]
        assert content is not None
        if kind.content == "json":
            return json.dumps(mutate_json(json.loads(content), dice)).encode()
        if kind.content == "toml":
            values = mutate_json(tomllib.loads(content.decode()), dice)
            pairs = values.items() if isinstance(values, dict) else [("preset", values)]
            return "".join(f"{key} = {json.dumps(value).replace(': ', ' = ')}\n" for key, value in pairs).encode()
        if kind.content == "lines":
            return b"\n".join(json.dumps(mutate_json(json.loads(line), dice)).encode() for line in content.splitlines())
        if kind.content == "record":
            lay_out(files, self.home / "files")
            path = self.home / "files" / kind.file
            known = "a checkpoint" if "checkpoint" in kind.file else "weights"
            tensors, record = read_checksummed(path, known)
            changed = mutate_json(record, dice)
            if isinstance(changed, dict):
                changed["kind"] = known
            with contextlib.suppress(ValueError):  # JSON has no nan
                return checksummed_bytes(tensors, changed)
            return content
        others = [each for each in files.values() if each]
        return mutate_bytes(content, dice, dice.choice(others))

    def try_file(self, name: str, seed: str) -> str:
        """Mutate a file of this kind and read it; see `try_content`."""
        return self.try_content(name, self.mutated(KINDS[name], random.Random(f"{seed} {name}")))

    def try_content(self, name: str, content: bytes) -> str:
        """Read a file of this kind with this content: "same", "other" or "refused". Raises if it is none of these."""
        kind = KINDS[name]
        files, expected = self.original(kind)
        lay_out(files | {kind.file: content}, self.home / "files")
        try:
            with limited():
                found = kind.read(self.home / "files")
        except TembedError as error:
            said = str(error)
            path = Path(kind.file)
            assert "\n" not in said, f"more than one line: {said!r}"
            named = (str(self.home), path.name, path.stem, path.parts[0])
            assert any(name in said for name in named), f"no file is named: {said!r}"
            return "refused"
        assert found == expected or not kind.checked, "it is read as something else, although it has a checksum"
        return "same" if found == expected else "other"


@contextmanager
def limited() -> Iterator[None]:
    """Raise `Hang` after `CPU_SECONDS`, and `MemoryError` beyond `MEMORY`."""

    def hang(*_: object) -> None:
        raise Hang(f"more than {CPU_SECONDS:g} seconds")

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGPROF, hang)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
