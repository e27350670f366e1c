"""Training on cached features of a frozen network."""

import dataclasses
import errno
import importlib
import json
import os
import shutil
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from support.datasets import planes
from support.kills import fingerprint
from support.progress import Crash, CrashAfter
from torch import Tensor

from tembed.attachment.frozen import Frozen
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.files import InUse, locked
from tembed.common.progress import Progress
from tembed.images.pixels import padding
from tembed.lab.grid.cells import describe
from tembed.lab.training import feature_cache
from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.feature_cache import Entry, entries
from tembed.lab.training.frozen_features import VIEWS, CachedFeatures, frozen_inputs, view_crops
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.starting import build_start
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import load as load_network

TRAIN = 60
"""Training images of the dataset dots."""


class Said(Progress):
    """Keeps the messages. ``stop_at``: raise after this many images of features."""

    def __init__(self, stop_at: int | None = None):
        self.lines: list[str] = []
        self.stop_at = stop_at

    def say(self, line: str) -> None:
        self.lines.append(line)

    def update(self, task: str, done: float, total: float, **numbers: float) -> None:
        if task == "features" and done == self.stop_at:
            raise KeyError("stopped")

    @property
    def computed(self) -> bool:
        return any("computing the features" in line for line in self.lines)


def recipe_of(named: str, **changes: object) -> Recipe:
    return Recipe.from_preset("frozen", named, "dots", **{"epochs": 2, "batch_size": 13} | changes)


def test_only_block_and_head_change_and_the_run_holds_everything(named: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    run = train(recipe_of(named), tmp_path / "run")
    assert run.result is not None
    assert (
        evaluate(run.folder).to_json().items() <= run.result["test"].items()
    )  # of the network itself, not of cached features
    network = load_network(run.folder)
    assert isinstance(network, Frozen)
    weights = json.loads((run.folder / "network.json").read_text())["weights_sha256"]
    assert checksum(network.used_tensors()) == weights
    assert not network.train().trunk.training
    assert network.eval().block is network.trained_part.block
    assert describe(run.recipe).startswith("frozen preset, 2 epochs")
    checkpoints = list((run.folder / "checkpoints").glob("*.safetensors"))
    assert checkpoints
    for path in checkpoints:
        with safe_open(path, framework="pt") as file:
            assert any("block" in name for name in file.keys())  # noqa: SIM118
            assert not any("trunk" in name for name in file.keys())  # noqa: SIM118


def test_the_block_starts_with_class_vectors_beside_the_unchanged_features(named: str) -> None:
    """From zero ones, f' would hardly grow in the few steps that a few photographs give."""
    network = build_start(recipe_of(named).complete(), 4, 16).model
    f = torch.randn(2, network.block.out_channels, 4, 4)
    steps = network.block.eval().steps(f)
    torch.testing.assert_close(steps.features - steps.embedding, f)
    assert steps.embedding.std() > 0.1


def test_cached_features_are_those_of_the_views(named: str) -> None:
    """Against images that are padded, cropped and mirrored one by one."""
    recipe = recipe_of(named).complete()
    inputs = load_inputs(recipe)
    network = build_start(recipe, len(inputs.classes), inputs.side).model
    assert isinstance(network, Frozen)
    cached = frozen_inputs(recipe, network, inputs, Said(), lambda: None)
    images, size = inputs.train.images, inputs.splits.train.size
    mean, std = (torch.tensor(each)[:, None, None] for each in (inputs.mean, inputs.std))
    for view in range(VIEWS):
        draws = view_crops(len(images), *size, view)
        for index in (0, 7, 31):
            colour = (mean * 255).round() / 255
            edge = padding(size[0])
            pixels = planes(images)[index] / 255
            padded = F.pad((pixels.flip(2) if view % 2 else pixels) - colour, (edge,) * 4) + colour
            top, left = int(draws.top[index]), int(draws.left[index])
            picture = padded[:, top : top + size[0], left : left + size[1]]
            expected = network.features(((picture - mean) / std)[None])
            found = torch.from_numpy(np.array(cached.train.source.views[view][index])).permute(2, 0, 1)  # type: ignore[attr-defined]
            torch.testing.assert_close(found.float(), expected[0], rtol=2e-3, atol=2e-3)
    crops = {view: view_crops(len(images), *size, view).top.tolist() for view in range(VIEWS)}
    assert set(crops[0]) == set(crops[1]) == {padding(size[0])}
    assert len(set(crops[2])) > 1


def test_an_epoch_shows_each_image_once_in_views_that_change(named: str) -> None:
    recipe = recipe_of(named).complete()
    inputs = load_inputs(recipe)
    network = build_start(recipe, len(inputs.classes), inputs.side).model
    assert isinstance(network, Frozen)
    batches = frozen_inputs(recipe, network, inputs, Said(), lambda: None).train
    count = len(batches.images)
    # Replace the features by the position of the image and the number of the view.
    marks = np.stack([np.arange(count)] * VIEWS)
    views = tuple(np.stack([marks[v], np.full(count, v)], 1)[:, None, None].astype(np.float16) for v in range(VIEWS))
    batches = dataclasses.replace(batches, source=CachedFeatures(views))
    seen: list[tuple[Tensor, Tensor]] = []
    for epoch in range(2):
        maps, labels = zip(*batches.epoch(epoch), strict=True)
        found = torch.cat(maps)[:, :, 0, 0].long()
        assert sorted(found[:, 0].tolist()) == list(range(count))
        assert torch.equal(torch.cat(labels), batches.images.labels[found[:, 0]])
        seen.append((found[found[:, 0].argsort(), 1], found[:, 0]))
    assert set(seen[0][0].tolist()) == set(range(VIEWS))
    assert not torch.equal(seen[0][0], seen[1][0])
    assert not torch.equal(seen[0][1], seen[1][1])


def test_the_cache_is_shared_by_seeds_and_blocks_and_nothing_else(named: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    recipe = recipe_of(named).complete()
    network = build_start(recipe, 10, 8).model
    assert isinstance(network, Frozen)
    tensors = network.trunk.model.state_dict()
    torch.save(tensors, weights)
    torch.save(tensors | {"0.bias": tensors["0.bias"] + 1}, tmp_path / "others.pth")
    cases = [
        ({}, True),
        ({"seed": 3}, False),
        ({"model": f"{named}:none"}, False),
        ({"train_images": 39}, True),
        ({"init": str(tmp_path / "others.pth")}, True),
    ]
    for number, (changes, computed) in enumerate(cases):
        said = Said()
        base = recipe_of(named, init=str(weights), epochs=1)
        train(dataclasses.replace(base, **changes), tmp_path / f"run-{number}", progress=said)  # type: ignore[arg-type]
        assert said.computed == computed, changes
    assert len(entries()) == 3


def test_the_cache_is_not_shared_by_other_code(
    named: str, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights fit a network with another activation, but its features differ."""
    recipe, said = recipe_of(named, init=str(tmp_path / "weights.pth"), epochs=1), Said()
    network = build_start(recipe_of(named).complete(), 10, 8).model
    assert isinstance(network, Frozen)
    torch.save(network.trunk.model.state_dict(), tmp_path / "weights.pth")
    train(recipe, tmp_path / "run")
    code.write_text(code.read_text().replace("nn.ReLU()", "nn.GELU()"))
    monkeypatch.delitem(sys.modules, code.stem)
    importlib.invalidate_caches()
    run = train(recipe, tmp_path / "again", progress=said)
    assert said.computed
    assert run.result is not None


def test_a_damaged_cache_is_computed_again_and_nothing_is_lost(named: str, tmp_path: Path) -> None:
    recipe = recipe_of(named)
    reference = train(recipe, tmp_path / "reference")
    (entry,) = entries()
    path = entry.folder / "train-1.npy"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    said = Said()
    again = train(recipe, tmp_path / "again", progress=said)
    assert any("train-1.npy does not match its checksum" in line for line in said.lines)
    assert fingerprint(again.folder) == fingerprint(reference.folder)
    path.write_bytes(content[:100])
    path.with_suffix(".json").with_stem("train-2").write_text("")
    shutil.rmtree(again.folder)
    train(recipe, again.folder, progress=said)
    assert any(line.endswith("train-2.json is damaged") for line in said.lines)
    assert fingerprint(again.folder) == fingerprint(reference.folder)


def test_cached_features_are_hashed_once_for_each_state_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    real = feature_cache._sha256
    monkeypatch.setattr(feature_cache, "_sha256", lambda path: hashed.append(path.name) or real(path))  # type: ignore[func-returns-value]
    monkeypatch.setattr(feature_cache, "is_in_memory", lambda _: False)
    entry, shape = Entry(tmp_path), (3, 2)
    with entry.writing("val", shape) as array:
        array[:] = 1
    for _ in range(2):
        assert not isinstance(entry.read("val", shape), str)
    assert hashed == ["val.npy"], "when it was written"
    os.utime(tmp_path / "val.npy")
    for _ in range(2):
        assert not isinstance(entry.read("val", shape), str)
    assert hashed == ["val.npy"] * 2
    data = bytearray((tmp_path / "val.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "val.npy").write_bytes(data)
    assert "does not match its checksum" in str(entry.read("val", shape))


@pytest.mark.parametrize("content", ["garbage", "[]", "{}"])
def test_a_damaged_record_of_an_entry_is_listed_repaired_and_cleared(
    content: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(named, epochs=1)
    train(recipe, tmp_path / "run")
    (entry,) = entries()
    record, features = entry.folder / "about.json", entry.folder / "train-0.npy"
    good, written = record.read_text(), features.stat().st_mtime_ns
    record.write_text(content)
    assert main(["cache"]) == 0
    assert "about.json is damaged" in capsys.readouterr().out
    train(recipe, tmp_path / "again")
    assert json.loads(record.read_text()) == json.loads(good)
    assert features.stat().st_mtime_ns == written
    record.write_text(content)
    assert main(["cache", "--clear"]) == 0
    assert entries() == []


def test_an_interrupted_extraction_continues(named: str, tmp_path: Path) -> None:
    recipe = recipe_of(named)
    with pytest.raises(KeyError, match="stopped"):
        train(recipe, tmp_path / "run", progress=Said(stop_at=3 * TRAIN))
    (entry,) = entries()
    assert sorted(path.name for path in entry.folder.glob("*.npy*")) == ["train-0.npy", "train-1.npy"]
    before = (entry.folder / "train-0.npy").stat().st_mtime_ns
    run = train(recipe, tmp_path / "run")
    assert run.result is not None
    assert (entry.folder / "train-0.npy").stat().st_mtime_ns == before
    reference = train(recipe, tmp_path / "reference")
    assert fingerprint(run.folder) == fingerprint(reference.folder)


def test_a_run_waits_for_another_one_that_computes_the_same_features(named: str, tmp_path: Path) -> None:
    recipe = recipe_of(named)
    train(recipe, tmp_path / "reference")
    (entry,) = entries()
    lock = threading.Event()

    class Wait(Said):
        def say(self, line: str) -> None:
            super().say(line)
            if line.startswith("waiting for another run"):
                lock.set()

    def hold() -> None:
        with locked(entry.folder / "lock"):
            held.set()
            lock.wait(60)

    held = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    said = Wait()
    run = train(recipe, tmp_path / "run", progress=said)
    thread.join()
    assert sum(line.startswith("waiting") for line in said.lines) == 1
    assert fingerprint(run.folder) == fingerprint(tmp_path / "reference")


def test_a_frozen_run_resumes_to_the_same_bits(named: str, tmp_path: Path) -> None:
    recipe = recipe_of(named)
    reference = train(recipe, tmp_path / "reference")

    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", progress=CrashAfter(80), checkpoint_seconds=0)
    train(recipe, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(reference.folder)


def test_features_that_do_not_fit_on_the_disk_are_refused_before_any_work(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: types.SimpleNamespace(free=2**28 + 1000))
    with pytest.raises(TembedError, match=r"features need 0.0 GB.*TEMBED_CACHE"):
        train(recipe_of(named), tmp_path / "run")
    monkeypatch.undo()


def test_a_disk_that_fills_up_is_noticed_before_the_features_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    entry = Entry(tmp_path)
    with entry.writing("val", (1000, 64)) as array:
        assert (tmp_path / "val.npy.part").stat().st_blocks * 512 >= array.nbytes, "the space is reserved"
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TembedError, match="set TEMBED_CACHE to another disk"), entry.writing("train", (1000, 64)):
        pytest.fail("there is no room")
    assert not list(tmp_path.glob("train*"))


def test_double_precision_is_refused(named: str, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="64-true does not go with `freeze`"):
        train(recipe_of(named), tmp_path / "run", hardware=Hardware(accelerator="cpu", precision="64-true"))


def test_other_weights_in_the_same_run_are_refused(named: str, tmp_path: Path) -> None:
    recipe = recipe_of(named, init=str(tmp_path / "weights.pth"))
    network = build_start(recipe_of(named).complete(), 10, 8).model
    assert isinstance(network, Frozen)
    tensors = network.trunk.model.state_dict()
    torch.save(tensors, tmp_path / "weights.pth")

    class Break(Progress):
        def epoch(self, record: object, epochs: int) -> None:
            raise KeyError("crash")

    with pytest.raises(KeyError):
        train(recipe, tmp_path / "run", progress=Break())
    torch.save({name: value + 1 for name, value in tensors.items()}, tmp_path / "weights.pth")
    with pytest.raises(TembedError, match=r"other weights.*weights\.pth"):
        train(recipe, tmp_path / "run")
    torch.save(tensors, tmp_path / "weights.pth")
    assert train(recipe, tmp_path / "run").result is not None


def test_random_weights_and_a_single_image_are_pointed_out(named: str, tmp_path: Path) -> None:
    said = Said()
    run = train(recipe_of(named, init="random"), tmp_path / "run", progress=said)
    assert any("random weights" in line for line in said.lines)
    assert json.loads((run.folder / "network.json").read_text())["init"] == "random"
    assert Run.open(run.folder).recipe.init == "random"
    single = recipe_of(named.replace("@4", "@5"), batch_size=32, train_images=33)
    with pytest.raises(TembedError, match="single patch"):
        train(single, tmp_path / "single", progress=said)
    assert sum("one patch per image" in line for line in said.lines) == 1


def test_the_command_lists_and_clears(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"train {named} --data dots --freeze --epochs 1 --batch-size 13 --block none --out run --quiet"
    assert main(line.split()) == 0
    assert Run.open("run").recipe.freeze
    assert Run.open("run").recipe.optimizer == "adamw"
    assert Run.open("run").recipe.model == f"{named}:none"
    (entry,) = entries()
    capsys.readouterr()
    assert main(["cache"]) == 0
    assert f"{named} on dots" in capsys.readouterr().out
    assert main(["cache", "--clear", "other"]) == 2
    capsys.readouterr()
    with locked(entry.folder / "lock"):
        assert main(["cache", "--clear"]) == InUse.exit_code
    assert main(["cache", "--clear"]) == 0
    assert entry.folder.name in capsys.readouterr().out
    assert entries() == []
    assert not Entry(entry.folder).folder.exists()
