"""Several processes compute the same as one, and end together."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import TIMEOUT

from tembed.common.errors import TembedError
from tembed.common.files import locked
from tembed.common.progress import Progress
from tembed.lab.training.evaluation import evaluate_batches
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.process_group import SINGLE_PROCESS, ProcessGroup, join_process_group
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, summary
from tembed.lab.training.starting import build
from tembed.trained.weights_file import load

LINE = (
    "rn26-embed --data dots --preset fast --epochs 3 --batch-size 9 --start-scale 1 --averaging 0.4 --precision 64-true"
)
RECIPE = Recipe.fast("rn26-embed", "dots", epochs=3, batch_size=9, start_scale=1.0, averaging=0.4)
DOUBLE = Hardware(accelerator="cpu", precision="64-true")


class Losses(Progress):
    def __init__(self) -> None:
        self.means: list[float] = []

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        if "loss" in numbers:
            self.means.append(numbers["loss"])


@pytest.mark.process
@pytest.mark.slow
def test_two_processes_stopped_and_killed_on_the_way_compute_the_same_as_one(tmp_path: Path, worlds: Path) -> None:
    """21 steps in batches of 9 and 6: shares of 4 and 5, and of 3 and 3. Stopped, then a worker is killed, then all
    workers lose their launcher, and torchrun resumes the run.

    In double precision, because Adam turns the rounding errors of zero gradients into full steps.
    """
    out = tmp_path / "pair"
    process = _command(out, worlds)
    _wait_for_steps(process, out)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 128 + signal.SIGTERM, said
    (line,) = _errors(said)
    assert line.startswith("tembed: error: stopped and saved after step ")

    process = _command(out, worlds)
    _wait_for_steps(process, out)
    workers = _children(process.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    said = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 2, said
    (line,) = _errors(said)
    assert line.startswith("tembed: error: process 1 of 2 was killed by SIGKILL, which ended the run")
    assert not any(map(_is_alive, workers))
    assert Run.open(out).result is None

    process = _command(out, worlds)
    _wait_for_steps(process, out)
    workers = _children(process.pid)
    process.kill()
    process.communicate(timeout=TIMEOUT)
    deadline = time.monotonic() + 60
    while any(map(_is_alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert Run.open(out).result is None
    said = _torchrun(worlds, "-m", "tembed", "train", *LINE.split(), "--out", str(out), "--quiet")
    assert said.count("test accuracy") == 1
    assert len(json.loads((out / "environment.json").read_text())["starts"]) == 4

    run, alone = Run.open(out), train(RECIPE, tmp_path / "alone", hardware=DOUBLE)
    for name in ("loss", "head", "patches", "val_accuracy", "val_head", "val_patches"):
        assert [r[name] for r in run.metrics] == pytest.approx([r[name] for r in alone.metrics], rel=1e-6), name
    shares = [r["variance_share"] for r in alone.metrics]
    assert [r["variance_share"] for r in run.metrics] == pytest.approx(shares, rel=1e-3)
    ours, theirs = load(run.folder).state_dict(), load(alone.folder).state_dict()
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-5)
    said = summary(run)["environment"]
    assert (said["accelerator"], said["devices"], said["nodes"], said["strategy"]) == ("cpu", 2, 1, "ddp")
    assert (said["precision"], said["compiled"]) == ("64-true", False)


SCRIPT = """
import sys
import tembed
recipe = tembed.Recipe("rn20", "dots", epochs=1, batch_size=30)
run = tembed.train(recipe, sys.argv[1], hardware=tembed.Hardware(accelerator="cpu"))
print("accuracy", run.result["test_accuracy"])
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_script_has_the_finished_run_in_every_process(tmp_path: Path, worlds: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    said = _torchrun(worlds, str(script), str(tmp_path / "run"))
    assert said.count("accuracy") == 2


@pytest.mark.process
@pytest.mark.slow
def test_an_error_of_the_processes_is_shown_once(tmp_path: Path, worlds: Path) -> None:
    """All of them find that there is no such dataset; only the first finds that the folder is in use."""
    process = _command(tmp_path / "run", worlds, "--data", "no-such-dataset")
    said = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 2, said
    (line,) = said.splitlines()
    assert line.startswith("tembed: error: ")
    assert "no-such-dataset" in line
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run" / "lock"):
        process = _command(tmp_path / "run", worlds)
        said = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 2, said
    (line,) = said.splitlines()
    assert "is in use by another process" in line


def test_evaluation_counts_each_image_once() -> None:
    """20 images, measured by 1, 3 and 24 processes, whose sums are added here."""
    recipe = RECIPE.complete()
    model = build(recipe, 10, 8)
    whole = evaluate_batches(model, load_inputs(recipe).test)
    for world in (3, 24):
        sums = []
        for rank in range(world):
            share = Share(rank, world)
            batches = load_inputs(recipe).test
            order = dataclasses.replace(batches.order, rank=rank, world_size=world)
            batches = dataclasses.replace(batches, order=order)
            evaluate_batches(model, batches, group=share)
            sums.append(share.values)
        correct, head, patches, patch_correct, patch_count = (sum(column) for column in zip(*sums, strict=True))
        assert patch_count == 20 * 4
        assert (correct / 20, patch_correct / patch_count) == (whole.accuracy, whole.patch_accuracy)
        assert (head / 20, patches / 20) == pytest.approx((whole.head, whole.patches))


class Share(ProcessGroup):
    """One of several processes, which keeps its own sums."""

    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        self.values = values
        return [*values[:4], values[4] or 1]


def test_noise_differs_by_process_and_the_first_has_the_noise_of_a_single_one() -> None:
    keys = [Share(rank, 3).noise_key for rank in range(3)]
    assert len(set(keys)) == 3
    assert keys[0] == SINGLE_PROCESS.noise_key == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"precision": "bf16-mixed"}, {"compile": True}])
def test_half_precision_and_compilation_train_nearly_alike(
    options: dict[str, Any], worlds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilation without machine code, which takes minutes: it traces the same graphs and runs them.

    The conventions of Keras also clip the gradients of whatever wraps the model.
    """
    compiled: list[object] = []

    def traced(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        compiled.append(function)
        return compiler(function, **settings, backend="aot_eager")

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", traced)
    recipe = dataclasses.replace(RECIPE, epochs=1, conventions="keras")
    plain, other = Losses(), Losses()
    alone = train(recipe, tmp_path / "plain", root=worlds, hardware=Hardware(accelerator="cpu"), progress=plain)
    hardware = Hardware(accelerator="cpu", **options)
    run = train(recipe, tmp_path / "other", root=worlds, hardware=hardware, progress=other)
    said = summary(run)["environment"]
    assert (said["precision"], said["compiled"]) == (hardware.precision, hardware.compile)
    assert bool(compiled) == hardware.compile
    assert other.means[0] == pytest.approx(plain.means[0], rel=2e-2)
    assert other.means != plain.means, "the option changed nothing"
    assert [(name, t.shape, t.dtype) for name, t in load(run.folder).state_dict().items()] == [
        (name, t.shape, t.dtype) for name, t in load(alone.folder).state_dict().items()
    ]


@pytest.mark.parametrize(
    ("hardware", "said"),
    [
        (Hardware(devices=0), "`devices` is 0; it must be at least 1"),
        (Hardware(strategy="fsdp"), "`strategy` is 'fsdp'; it must be one of ddp"),  # type: ignore[arg-type]
        (Hardware(precision="8-true"), "`precision` is '8-true'; it must be one of 32-true, "),  # type: ignore[arg-type]
        (Hardware(accelerator="cpu", precision="16-mixed"), "16-mixed is for GPUs"),
        (Hardware(accelerator="cpu", devices=8), "with torchrun --nproc-per-node 8 SCRIPT.py, or with -m tembed train"),
        (
            Hardware(accelerator="cpu", devices=2, nodes=3),
            "on each machine with torchrun --nnodes 3 .* SCRIPT",
        ),
    ],
)
def test_missing_hardware_gives_a_one_line_error(hardware: Hardware, said: str, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match=said) as caught:
        train(RECIPE, tmp_path / "run", hardware=hardware)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_more_gpus_than_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TembedError, match="torch finds no GPU here"):
        Hardware(accelerator="cuda").complete()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Hardware(devices=2).complete().accelerator == "cuda"
    with pytest.raises(TembedError, match="`devices` is 3, but there are 2 GPUs"):
        Hardware(devices=3).complete()


def test_the_gpu_of_a_mac_is_chosen_and_is_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TembedError, match="`accelerator` is mps, but torch finds no GPU here"):
        Hardware(accelerator="mps").complete()
    with pytest.raises(TembedError, match="'gpu'; it must be one of auto, cpu, cuda, mps"):
        Hardware(accelerator="gpu").complete()  # type: ignore[arg-type]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert Hardware().complete().accelerator == "mps"
    assert Hardware(accelerator="cpu").complete().accelerator == "cpu"
    for hardware in (Hardware(devices=2), Hardware(precision="64-true")):
        with pytest.raises(TembedError, match="a Mac has one GPU, without 64-true"):
            hardware.complete()


def test_numbers_that_contradict_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    full = Hardware(accelerator="cpu").complete()
    assert (full.devices, full.nodes, full.world) == (2, 3, 6)
    with pytest.raises(TembedError, match="`devices` is 3, but torchrun started 2"):
        Hardware(devices=3).complete()


def test_a_missing_compiler_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TembedError, match="`compile` needs a C\\+\\+ compiler, and there is no no-such-compiler"):
        Hardware(accelerator="cpu", compile=True).complete()


@pytest.mark.process
def test_one_process_needs_no_fabric() -> None:
    assert type(join_process_group(Hardware(accelerator="cpu").complete())) is ProcessGroup
    code = "import sys, tembed.lab.training.loop; sys.exit('lightning_fabric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- the command in its own processes


def _environment(root: Path) -> dict[str, str]:
    return os.environ | {"TEMBED_DATA": str(root), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def _command(out: Path, root: Path, *more: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tembed", "train", *LINE.split(), "--devices", "2", "--out", str(out)]
    return subprocess.Popen(
        [*line, "--checkpoint-seconds", "0", *more],
        env=_environment(root),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _torchrun(root: Path, *arguments: str) -> str:
    """What two processes print."""
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    done = subprocess.run(line, env=_environment(root), capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRESS = ("training ", "epoch ", "resuming ", "training: ", "validation: ", "test: ")
"""How lines of progress begin; the last three only come on a slow machine."""


def _errors(said: str) -> list[str]:
    """The lines that are not progress."""
    return [line for line in said.splitlines() if not line.startswith(PROGRESS)]


def _wait_for_steps(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the run has saved a step since it was started."""
    path, deadline = out / "checkpoints" / "newest.safetensors", time.monotonic() + TIMEOUT

    def changed() -> int:
        try:
            return path.stat().st_mtime_ns
        except FileNotFoundError:  # not yet, or not between the two renames of a checkpoint
            return 0

    before = changed()
    while changed() in (0, before):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    """The processes of a run, by rank."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks = [int(entry.partition(b"=")[2]) for entry in environment if entry.startswith(b"LOCAL_RANK=")]
        found.update({rank: int(child) for rank in ranks})
    return [found[rank] for rank in sorted(found)]


def _is_alive(pid: int) -> bool:
    """Whether a process runs. In a container whose first process reaps no others, it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
