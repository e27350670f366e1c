"""A weights file describes its model, and loads as the model that was trained."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support.progress import Said
from torch import nn

import tembed.trained.weights_file
from tembed.common.errors import TembedError
from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.models.description import Description
from tembed.models.registry import create_model
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.hub import save_pretrained
from tembed.trained.onnx_file import to_onnx
from tembed.trained.weights_file import export_weights, load, save_weights, unwrapped_names

DOTS = Recipe("rn26-embed", "dots", epochs=1, batch_size=30, softmax_on_bn=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(DOTS, tmp_path_factory.mktemp("runs") / "run", root=worlds)


def test_any_safetensors_reader_finds_tensors_and_recipe(run: Run) -> None:
    with safe_open(run.best_path, framework="np") as file:
        names = set(file.keys())
        record = json.loads(json.loads(file.metadata()["tembed"])["record"])
    assert names == set(create_model("rn26-embed").state_dict())
    assert Recipe.from_json(record["recipe"]) == DOTS.complete()


def test_a_run_and_its_file_give_the_same_model(run: Run, tmp_path: Path) -> None:
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes(run.best_path.read_bytes())
    images = torch.rand(4, 3, 8, 8)
    one, two = load(run.folder)(images), load(str(moved))(images)
    assert torch.equal(one.logits, two.logits)
    assert torch.equal(one.scores, two.scores)
    model = load(moved)
    assert model.block.softmax_on_bn
    known = model.description
    assert (known.input_size, len(known.classes), len(known.mean), known.epoch) == (8, 10, 3, 1)


def test_weights_of_a_finished_run_know_its_result(run: Run, tmp_path: Path) -> None:
    assert load(run.folder).description.result == run.result
    unfinished = tmp_path / "best.safetensors"
    unfinished.write_bytes(run.best_path.read_bytes())
    assert load(unfinished).description.result is None
    (tmp_path / "result.json").write_text(json.dumps(run.result | {"best_epoch": 2}))  # of other weights
    assert load(unfinished).description.result is None
    (tmp_path / "result.json").write_text(json.dumps({"best_epoch": run.result["best_epoch"]}))
    with pytest.raises(TembedError, match=r"best.safetensors .*\(its result cannot be used: it has no "):
        load(unfinished)


def test_half_precision_halves_the_file_and_keeps_three_digits(run: Run, tmp_path: Path) -> None:
    small = tmp_path / "small.safetensors"
    export_weights(run.folder, small, half=True)
    assert small.stat().st_size < 0.55 * run.best_path.stat().st_size
    rounded = load(small)
    for name, tensor in load(run.folder).state_dict().items():
        found = rounded.state_dict()[name]
        assert found.dtype == tensor.dtype
        torch.testing.assert_close(
            found, tensor, rtol=1e-3 if tensor.ndim > 1 else 0, atol=1e-7 if tensor.ndim > 1 else 0
        )


def test_saved_names_contain_no_wrapper_prefixes(tmp_path: Path) -> None:
    bare = create_model("rn20")
    names = set(bare.state_dict())
    assert set(unwrapped_names(nn.DataParallel(bare).state_dict())) == names
    assert set(unwrapped_names(torch.compile(nn.DataParallel(bare), backend="eager").state_dict())) == names
    save_weights(tmp_path / "w.safetensors", torch.compile(bare, backend="eager").state_dict(), Description())
    assert set(read_checksummed(tmp_path / "w.safetensors", "weights")[0]) == names
    own = nn.ModuleDict({"module": nn.Linear(2, 2), "head": nn.ModuleDict({"module": nn.Linear(2, 3)})})
    assert set(unwrapped_names(own.state_dict())) == set(own.state_dict()), "these are the network's own names"


def test_images_of_another_size_are_resized_for_an_evaluation(run: Run, worlds: Path) -> None:
    said = Said()
    evaluate(run.folder, data="tiny", root=worlds, progress=said)
    assert any("images are resized from 16 to 8 pixels, the size of" in line for line in said.lines)


def test_an_error_about_an_unknown_source_lists_the_shipped_names(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    with pytest.raises(
        TembedError,
        match="'rn26/cifar1000' is not a run folder, a weights file or the name of shipped w",
    ):
        load("rn26/cifar1000")
    monkeypatch.setattr(tembed.trained.weights_file, "shipped", lambda: {"rn26-embed/dots": run.best_path})
    assert load("rn26-embed/dots").num_classes == 10
    with pytest.raises(TembedError, match="shipped: rn26-embed/dots"):
        load("rn26")


def test_a_folder_that_is_not_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="is not a run folder"):
        load(tmp_path)


def test_weights_that_do_not_fit_their_recipe_are_refused(run: Run, tmp_path: Path) -> None:
    tensors, record = read_checksummed(run.best_path, "weights")
    path = tmp_path / "w.safetensors"
    recipe = record["recipe"]
    for change in (
        {"recipe": recipe | {"model": "rn38"}},
        {"recipe": 7},
        {"model": "rn38", "recipe": recipe | {"model": "rn38"}},
        {"options": {"softmax_on_bn": True, "window": 99, "sparkle": 1}},
        {"options": []},
        {"classes": 3},
        {"classes": []},
        {"epoch": "last"},
        {"input_size": -1},
        {"mean": [1]},
    ):
        path.write_bytes(checksummed_bytes(tensors, record | change))
        with pytest.raises(TembedError, match=f"{path} does not hold the weights that it describes"):
            load(path)
    (tmp_path / "c.safetensors").write_bytes(run.checkpoints.newest.read_bytes())
    with pytest.raises(TembedError, match="does not hold weights"):
        load(tmp_path / "c.safetensors")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["head.weight", "block.maximizer.bn.running_var"])
def test_weights_that_are_not_finite_are_refused(run: Run, tmp_path: Path, name: str, number: float) -> None:
    """A network with NaN in its logits predicts the first class for every image, which looks like an accuracy."""
    tensors, record = read_checksummed(run.best_path, "weights")
    tensors[name].view(-1)[-1] = number
    path = tmp_path / "w.safetensors"
    path.write_bytes(checksummed_bytes(tensors, record))
    with pytest.raises(TembedError, match=rf"{path}.*{name} is not finite"):
        evaluate(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_size": 4096}, "images of 4096 pixels"),
        ({"mean": [0.5, 0.5, 1e999]}, "Infinity is not a finite number"),
        ({"mean": [1e300, 0.5, 0.5]}, "mean"),
        ({"std": [0.5, 0.0, 0.5]}, "std"),
        ({"std": [0.5, 1e-40, 0.5]}, "std"),
    ],
)
def test_sizes_and_normalisations_out_of_range_are_refused(
    run: Run, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    tensors, record = read_checksummed(run.best_path, "weights")
    path = tmp_path / "w.safetensors"
    text = json.dumps(record | change | {"kind": "weights"})
    metadata = {"tembed": json.dumps({"record": text, "sha256": checksum(tensors, text)})}
    save_file(tensors, path, metadata)
    with pytest.raises(TembedError, match=rf"{path}.*{message}"):
        load(path)


def test_outputs_that_are_not_finite_are_no_accuracy(run: Run, tmp_path: Path) -> None:
    """Finite weights can overflow."""
    tensors, record = read_checksummed(run.best_path, "weights")
    tensors["head.weight"].fill_(3e38)
    path = tmp_path / "w.safetensors"
    path.write_bytes(checksummed_bytes(tensors, record))
    with pytest.raises(TembedError, match="outputs are not finite"):
        evaluate(path)


LOAD = """
import resource, sys
from tembed.common.errors import TembedError
from tembed.trained.weights_file import load

load("rn26/cifar10")
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 800 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        load(path)
    except TembedError as error:
        print(error, flush=True)
"""


@pytest.mark.process
def test_weights_that_describe_a_giant_network_take_little_memory(run: Run, tmp_path: Path) -> None:
    tensors, record = read_checksummed(run.best_path, "weights")
    del record["recipe"]
    giants = {
        "classes": {"classes": [str(number) for number in range(3_000_000)]},
        "network": {"model": "timm:vit_giant_patch14_clip_224@blocks.3", "options": {"image_size": 224}},
        "frozen": {"model": "tembed:rn26@stage3", "options": {"freeze": True}, "classes": ["a"] * 3_000_000},
    }
    for name, change in giants.items():
        (tmp_path / name).write_bytes(checksummed_bytes(tensors, record | change))
    arguments = [sys.executable, "-c", LOAD, *(str(tmp_path / name) for name in giants)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    said = done.stdout.splitlines()
    assert (done.returncode, len(said)) == (0, 3), done.stderr[-2000:]
    assert "score.weight has the shape (10, 128, 1, 1) instead of (3000000, 128, 1, 1)" in said[0]
    for line in said[1:]:
        assert "weights are missing, such as" in line


def test_a_pipe_or_a_device_holds_no_weights(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    folder = save_pretrained(load(run.folder), tmp_path / "hub")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    for path in (tmp_path / "pipe.safetensors", folder, Path("/dev/zero")):
        with pytest.raises(TembedError, match="not a regular file"):
            load(path)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(run: Run, tmp_path: Path, dtype: torch.dtype) -> None:
    """They would be rounded, or lose their imaginary part, without a word."""
    tensors, record = read_checksummed(run.best_path, "weights")
    tensors["head.weight"] = tensors["head.weight"].to(dtype)
    path = tmp_path / "w.safetensors"
    path.write_bytes(checksummed_bytes(tensors, record))
    with pytest.raises(TembedError, match=rf"{path}.*head.weight is of {dtype} instead of torch.float32"):
        load(path)


@pytest.mark.parametrize("name", ["mine", "../../etc"])
def test_weights_of_an_unknown_network_ask_for_a_plugin(run: Run, tmp_path: Path, name: str) -> None:
    tensors, record = read_checksummed(run.best_path, "weights")
    path = tmp_path / "w.safetensors"
    path.write_bytes(checksummed_bytes(tensors, record | {"model": name}))
    with pytest.raises(TembedError, match=rf"{path}: unknown model '{name}'; .*--plugin MODULE"):
        load(path)


@pytest.mark.slow
def test_a_field_that_is_added_to_the_description_is_in_all_three_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the class changes: weights file, config.json and ONNX metadata write and read every field of it."""

    @dataclass(frozen=True)
    class Longer(Description):
        licence: str | None = None

    for module in ("models.description", "trained.weights_file", "trained.hub", "trained.onnx_file"):
        monkeypatch.setattr(f"tembed.{module}.Description", Longer)
    model = load(run.folder)
    model.description = dataclasses.replace(model.description, licence="CC0")
    save_weights(tmp_path / "w.safetensors", model.state_dict(), model.description)
    save_pretrained(model, tmp_path / "hub")
    made = to_onnx(model, tmp_path / "m.onnx")
    facts = {entry.key: entry.value for entry in onnx.load(made.path).metadata_props}
    read = Longer.from_json({key: value if key in ("model", "fit") else _json(value) for key, value in facts.items()})
    weights, hub = load(tmp_path / "w.safetensors").description, load(tmp_path / "hub").description
    for known in (weights, hub, read):
        assert isinstance(known, Longer)
        assert known.licence == "CC0"
        assert dataclasses.replace(known, weights_sha256=None) == dataclasses.replace(
            model.description, weights_sha256=None
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_weights_that_record_only_a_recipe_are_described_by_it(run: Run, tmp_path: Path) -> None:
    """As all weights did before descriptions: the shipped ones still do."""
    tensors, record = read_checksummed(run.best_path, "weights")
    for name in ("model", "options"):
        del record[name]
    path = tmp_path / "w.safetensors"
    path.write_bytes(checksummed_bytes(tensors, record))
    old, new = load(path).description, load(run.folder).description
    assert (old.model, old.options, old.classes) == (new.model, new.options, new.classes)
