"""What a run computes, and what it leaves in its folder."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import fingerprint
from support.progress import Crash, CrashAfter, Said

import tembed
from tembed.common.cores import SPINNING
from tembed.common.errors import TembedError
from tembed.common.files import locked
from tembed.common.progress import Lines, Progress
from tembed.images.pixels import resized
from tembed.lab.data.batches import Pixels
from tembed.lab.training.evaluation import evaluate, evaluate_in_detail, unpack_correct
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import Training, train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.schedule import derived_seed, learning_rate
from tembed.lab.training.starting import build
from tembed.models.conventions import CONVENTIONS
from tembed.trained.weights_file import load

DOTS = Recipe("rn26-embed", "dots", epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(DOTS, tmp_path_factory.mktemp("runs") / "run", root=worlds)


def test_the_folder_says_what_happened(finished: Run, worlds: Path) -> None:
    assert finished.recipe == DOTS.complete()
    environment = json.loads(finished.environment_path.read_text())
    assert environment["data_sha256"] == json.loads((worlds / "dots" / "manifest.json").read_text())["sha256"]
    (start,) = environment["starts"]
    assert start["torch"] == torch.__version__
    assert start["threads"] == torch.get_num_threads()
    assert {"python", "numpy", "processor", "commit", "started"} <= set(start)
    assert [record["epoch"] for record in finished.metrics] == [1, 2]
    expected = {"head", "patches", "accuracy", "val_accuracy", "images_per_second", "lr", "seconds"}
    assert all(expected <= set(record) for record in finished.metrics)


def test_the_result_is_the_test_accuracy_of_the_epoch_with_the_best_validation(finished: Run) -> None:
    result = finished.result
    assert result is not None
    best = max(finished.metrics, key=lambda record: record["val_accuracy"])
    assert (result["best_epoch"], result["val_accuracy"]) == (best["epoch"], best["val_accuracy"])
    again = evaluate_in_detail(finished.folder)
    correct = unpack_correct(result["test"].pop("correct"), again.evaluation.images)
    assert again.evaluation.to_json() == result["test"]
    assert correct.tolist() == (again.predictions.probabilities.argmax(1) == again.predictions.labels).tolist()
    assert evaluate(finished.folder, "val").accuracy == result["val_accuracy"]


def test_a_model_without_scores_has_no_patch_loss(tmp_path: Path) -> None:
    run = train(dataclasses.replace(DOTS, model="rn20", epochs=1), tmp_path / "run")
    assert run.metrics[0]["patches"] is None
    assert run.metrics[0]["loss"] == run.metrics[0]["head"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"label_smoothing": 0.2, "betas": (0.8, 0.95), "weight_decay": 1e-2, "weight": 0.3},
        {"balanced": True, "train_images": 45},
        {"flips": "alternating"},
    ],
    ids=lambda changes: "-".join(changes) or "paper",
)
def test_steps_are_those_of_plain_adam_with_l2_in_the_gradient(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Three steps of the recipe, written out, and the means over the images of the epoch."""
    recipe = dataclasses.replace(DOTS, epochs=1, **({"train_images": 48} | changes)).complete()
    seen = Remember()
    run = train(recipe, tmp_path / "run", progress=seen)
    inputs = load_inputs(recipe)
    assert isinstance(inputs.train.source, Pixels)
    assert inputs.train.source.flips == recipe.flips
    counts = inputs.train.images.labels.bincount(minlength=10)
    assert not recipe.balanced or len(counts.unique()) > 1
    factors = len(inputs.train.images) / (10 * counts) if recipe.balanced else torch.ones(10)
    (beta1, beta2), decay, weight = recipe.betas, recipe.weight_decay, recipe.weight
    assert weight is not None
    torch.manual_seed(derived_seed(recipe.seed, "weights"))
    model = build(recipe, 10, 8)
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in model.named_parameters()}
    losses, sums = [], torch.zeros(3)
    for step in range(3):
        images, labels = inputs.train.batch(0, step)
        output = model(images)
        log_head, log_patches = output.logits.log_softmax(1), output.scores.log_softmax(1).mean((2, 3))
        target = recipe.label_smoothing / 10 + (1 - recipe.label_smoothing) * torch.eye(10)
        head, patches = (
            -torch.stack([factors[y] * (target[y] * log[n]).sum() for n, y in enumerate(labels)]).mean()
            for log in (log_head, log_patches)
        )
        loss = (1 - weight) * head + weight * patches
        model.zero_grad()
        loss.backward()
        losses.append(loss.item() * len(labels))
        right = (log_head.argmax(1) == labels).float().mean()
        sums += torch.stack([head, patches, right]).detach() * len(labels)
        with torch.no_grad():
            for name, p in model.named_parameters():
                g, (m, v), t = p.grad + decay * p, moments[name], step + 1
                m.mul_(beta1).add_((1 - beta1) * g)
                v.mul_(beta2).add_((1 - beta2) * g * g)
                p.sub_(1e-3 * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8))
    images = len(inputs.train.images)
    means = [sum(losses[:n]) / min(images, 16 * n) for n in (1, 2, 3)]
    assert seen.losses == pytest.approx(means, rel=1e-4)
    record = run.metrics[0]
    found = [record["head"], record["patches"], record["accuracy"]]
    assert found == pytest.approx((sums / images).tolist(), rel=1e-4)
    assert record["loss"] == pytest.approx(means[-1], rel=1e-4)


def test_keras_conventions_change_the_input_the_gradients_and_adam(tmp_path: Path, monkeypatch: Any) -> None:
    """Three steps written out. The clipping norm is lowered, so that it matters in each of them."""
    keras = dataclasses.replace(CONVENTIONS["keras"], gradient_norm=0.5)
    monkeypatch.setitem(CONVENTIONS, "keras", keras)
    recipe = dataclasses.replace(DOTS, epochs=1, train_images=48, conventions="keras").complete()
    run = train(recipe, tmp_path / "run")
    inputs = load_inputs(recipe)
    assert isinstance(inputs.train.source, Pixels)
    assert inputs.train.source.std == inputs.std == (1.0, 1.0, 1.0)
    assert inputs.train.source.mean == inputs.mean == inputs.splits.mean
    torch.manual_seed(derived_seed(recipe.seed, "weights"))
    model = build(recipe, 10, 8)
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in model.named_parameters()}
    loss_function = tembed.EmbeddingLoss(0.5)
    for step in range(3):
        images, labels = inputs.train.batch(0, step)
        model.zero_grad()
        loss_function(model(images), labels).backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
        assert norm > 0.5
        with torch.no_grad():
            for name, p in model.named_parameters():
                g, (m, v), t = p.grad * (0.5 / norm) + 1e-4 * p, moments[name], step + 1
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                p.sub_(1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-7))
    trained = load(run.folder)
    norms = [module for module in trained.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.01, 1e-3)}
    assert trained.stage2[0].projects_raw_input
    for (name, ours), theirs in zip(model.state_dict().items(), trained.state_dict().values(), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=2e-2, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
def test_a_run_ends_early_and_its_rate_falls_also_after_a_crash(tmp_path: Path) -> None:
    """At a rate of almost zero nothing improves: the first epoch stays the best, and patience decides."""
    recipe = dataclasses.replace(DOTS, epochs=50, train_images=32, lr=1e-8, patience=7, schedule="plateau")
    run = train(recipe, tmp_path / "run")
    accuracies = [record["val_accuracy"] for record in run.metrics]
    best = accuracies.index(max(accuracies))
    assert len(accuracies) == best + 8 < 50
    result = run.result
    assert result is not None
    assert (result["epochs"], result["best_epoch"]) == (len(accuracies), best + 1)
    steps = 2
    assert [record["lr"] for record in run.metrics] == [
        learning_rate(recipe.complete(), steps * (epoch + 1) - 1, steps * 50, accuracies[:epoch])
        for epoch in range(len(accuracies))
    ]
    with pytest.raises(Crash):
        train(recipe, tmp_path / "again", progress=CrashAfter(32 * 6 + 16))
    again = train(recipe, tmp_path / "again")
    assert fingerprint(again.folder) == fingerprint(run.folder)


class Remember(Progress):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        if "loss" in numbers:
            self.losses.append(numbers["loss"])


def test_the_same_recipe_gives_the_same_bits_whatever_the_global_generator(finished: Run, tmp_path: Path) -> None:
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    again = train(DOTS, tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert fingerprint(again.folder) == fingerprint(finished.folder)
    other = train(dataclasses.replace(DOTS, seed=1), tmp_path / "other")
    assert fingerprint(other.folder)["weights"] != fingerprint(finished.folder)["weights"]


@pytest.mark.slow
def test_a_run_that_crashes_after_any_step_resumes_to_the_same_end(finished: Run, tmp_path: Path) -> None:
    """An epoch has four steps, each saved, and a validation; the run crashes in each of them in turn."""

    class Break(Progress):
        def __init__(self, at: int):
            self.left = at

        def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
            if task == "training" and not numbers.get("loss"):
                return
            self.left -= 1
            if self.left < 0:
                raise Crash

    for at in (0, 1, 1, 2, 0, 1, 2):
        with pytest.raises(Crash):
            train(DOTS, tmp_path / "run", progress=Break(at), checkpoint_seconds=0)
    train(DOTS, tmp_path / "run", checkpoint_seconds=0)
    assert fingerprint(tmp_path / "run") == fingerprint(finished.folder)


def test_a_finished_run_is_not_touched(finished: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*") if path.name != "lock"}
    assert train(DOTS, finished.folder).result == finished.result
    assert {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*") if path.name != "lock"} == before


def test_another_recipe_in_the_same_folder_is_refused_with_the_differences(finished: Run) -> None:
    with pytest.raises(TembedError, match=r"asked for epochs: 3, not 2; lr: 0.5, not 0.001.*another `out`"):
        train(dataclasses.replace(DOTS, lr=0.5, epochs=3), finished.folder)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(TembedError, match=r"is not empty \(thesis.tex\)"):
        train(DOTS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(TembedError, match="in use by another process"):
        train(DOTS, tmp_path)


def test_another_dataset_of_the_same_name_is_refused(tmp_path: Path, worlds: Path) -> None:
    from support.datasets import store_world

    _break_off(DOTS, tmp_path / "run", worlds)
    store_world(tmp_path / "elsewhere", "dots", 110, 8)
    with pytest.raises(TembedError, match="not the dataset that"):
        train(DOTS, tmp_path / "run", root=tmp_path / "elsewhere")


def test_a_loss_that_is_not_finite_names_step_images_and_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "train_step", _poisoned(Training.train_step))
    with pytest.raises(TembedError) as caught:
        train(DOTS, tmp_path / "run", checkpoint_seconds=0)
    message, inputs = str(caught.value), load_inputs(DOTS)
    expected = inputs.train.images.indices[inputs.train.order.positions(1, 2)].tolist()
    assert "the loss is nan at step 2 of epoch 2" in message
    assert str(expected) in message
    assert f"last good checkpoint: {tmp_path / 'run' / 'checkpoints' / 'newest.safetensors'}" in message
    assert Run.open(tmp_path / "run").result is None


def _poisoned(step: Any) -> Any:
    def poisoned(self: Training, side: int) -> None:
        if (self.state.epoch, self.state.step) == (1, 2):
            with torch.no_grad():
                next(iter(self.model.parameters())).fill_(math.nan)
        step(self, side)

    return poisoned


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Training.train_step

    def poisoned(self: Training, side: int) -> None:
        step(self, side)
        if self.state.step == 2:
            with torch.no_grad():
                self.model.head.bias.fill_(math.inf)

    monkeypatch.setattr(Training, "train_step", poisoned)
    with pytest.raises(
        TembedError, match=r"head.bias is not finite after step 3 of epoch 1; last good checkpoint: .*newest"
    ):
        train(DOTS, tmp_path / "run", checkpoint_seconds=0)


def test_images_grow_and_the_rate_follows_its_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides, rates = [], []
    step = Training.train_step

    def recorded(self: Training, side: int) -> None:
        hook = self.model.register_forward_pre_hook(lambda module, inputs: sides.append(inputs[0].shape[-1]))
        step(self, side)
        hook.remove()
        rates.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(Training, "train_step", recorded)
    recipe = Recipe.fast("rn20", "tiny", epochs=3, start_scale=0.5, train_images=40, batch_size=20)
    run = train(recipe, tmp_path / "run")
    assert [record["image_side"] for record in run.metrics] == [8, 12, 16]
    assert sides == [8, 8, 12, 12, 16, 16]
    assert rates == pytest.approx([learning_rate(recipe.complete(), step, 6) for step in range(6)])
    assert max(rates) > 2 * rates[-1] > 0


class Busy:
    """Cores that other processes use from the first step on."""

    def noticed(self, now: float) -> bool:
        return True


@pytest.fixture
def busy_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs find busy cores, and an environment in which a command chose spinning threads."""
    monkeypatch.setattr(Training, "go", _on_busy_cores(Training.go))
    for name, value in SPINNING.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("busy_cores")
def test_a_run_on_busy_cores_warns_once_and_says_how_to_resume(tmp_path: Path) -> None:
    said = Said()
    assert train(dataclasses.replace(DOTS, epochs=1), tmp_path / "run", progress=said).result is not None
    (warning,) = [line for line in said.lines if "another process uses the cores" in line]
    assert "set OMP_WAIT_POLICY=PASSIVE, and run the same command again to resume" in warning


def _on_busy_cores(go: Any) -> Any:
    def busy(self: Training) -> None:
        self.crowd = Busy()  # type: ignore[assignment]
        go(self)

    return busy


def test_plain_lines_show_each_epoch_and_the_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(dataclasses.replace(DOTS, epochs=1), tmp_path / "run", progress=Lines(every=0))
    said = capsys.readouterr().err
    assert "training: epoch 1/1, 27 %, loss" in said
    assert "images/s, about" in said
    assert "epoch 1/1: loss head" in said


def test_training_is_available_from_the_package(finished: Run) -> None:
    assert (tembed.train, tembed.evaluate, tembed.load) == (train, evaluate, load)
    assert (tembed.Recipe, tembed.Run) == (Recipe, Run)
    model = load(finished.folder)
    assert not model.training
    images = load_inputs(DOTS).test.batch(0, 0)[0]
    assert model(resized(images, 8)).logits.shape == (20, 10)


def _break_off(recipe: Recipe, out: Path, root: Path) -> None:
    class Break(Progress):
        def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
            if task != "training":
                raise Crash

    with pytest.raises(Crash):
        train(recipe, out, root=root, progress=Break(), checkpoint_seconds=0)
