"""The training loop: steps, epochs, and a state that a run can resume from at any step."""

import dataclasses
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tembed.attachment.frozen import Frozen
from tembed.common.cores import Crowd, threads_sleep
from tembed.common.errors import TembedError, counted
from tembed.common.files import Lock, locked, make_folder
from tembed.common.progress import Progress
from tembed.images.pixels import resized
from tembed.lab.data.batches import Batches
from tembed.lab.data.device_batches import on_device
from tembed.lab.training.averaging import Averaging
from tembed.lab.training.compiling import compile_loss
from tembed.lab.training.evaluation import Evaluation, evaluate_batches
from tembed.lab.training.hardware import Hardware, check_started, is_first_process
from tembed.lab.training.inputs import Inputs, balancing_weights, load_inputs
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.process_group import ProcessGroup, join_process_group
from tembed.lab.training.recalibration import recalibrate, recalibrates, staleness_warning
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, default_folder
from tembed.lab.training.run_storage import RunStorage
from tembed.lab.training.schedule import derived_seed, ends_early, image_side, learning_rate
from tembed.lab.training.starting import start_network
from tembed.lab.training.state import Sums, copy_tensors
from tembed.lab.training.step_measures import READ_STEPS, UnreadSteps, measured_loss
from tembed.lab.training.stopping import Stopped, StopRequest, listening
from tembed.lab.training.transfer import slow_down
from tembed.lab.training.variance_share import measured_share
from tembed.loss import EmbeddingLoss
from tembed.models.conventions import CONVENTIONS
from tembed.models.network import Output
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork

CHECKPOINT_SECONDS = 60.0


def train(
    recipe: Recipe,
    out: str | Path | None = None,
    *,
    root: str | Path | None = None,
    hardware: Hardware | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Train a recipe in the folder ``out``, or resume it there, and return the finished run.

    The same call again resumes a run that was stopped or killed, and gives the weights, metrics and result that it
    would have had, bit for bit (same machine, versions, threads and hardware). A finished run is returned unchanged.

    Args:
        recipe: what to train.
        out: the run folder; by default ``runs/<run_name(recipe)>``.
        root: where datasets are stored; by default ``$TEMBED_DATA``, else the user's cache folder.
        hardware: what to train on; by default one process, on a GPU if there is one. Several devices need a process
            each, which torchrun starts: this call then does the share of one of them.
        progress: the observer of the run; by default nothing is shown.
        checkpoint_seconds: how often to save within an epoch.

    Raises `Stopped` after SIGTERM or Ctrl-C, once the state is saved.
    """
    given, recipe, hardware = recipe, recipe.complete(root), (hardware or Hardware()).complete()
    if given.split != recipe.split == "official" and progress is not None and is_first_process():
        progress.say(f"{recipe.data} is split by its own folders; --split paper would pool them")
    if recipe.freeze and hardware.precision == "64-true":
        raise TembedError("`precision` 64-true does not go with `freeze`, whose features are cached in half precision")
    check_started(hardware)
    folder = Path(out) if out is not None else default_folder(recipe)
    if given.image_size is None and (run := Run(folder)).recipe_path.exists():  # the weights of `init` may be gone
        recipe = dataclasses.replace(recipe, image_size=run.recipe.image_size)
    group = join_process_group(hardware)
    with group.connected():
        _train(
            Job(recipe, folder, root, hardware, checkpoint_seconds),
            group,
            (progress or Progress()) if group.is_first else Progress(),
        )
    return Run(folder)


@dataclass(frozen=True)
class Job:
    """The arguments of `train`, complete."""

    recipe: Recipe
    out: Path
    root: str | Path | None
    hardware: Hardware
    checkpoint_seconds: float


def _train(job: Job, group: ProcessGroup, progress: Progress) -> None:
    recipe, run = job.recipe, Run(job.out)
    # A new run loads its data before it makes its folder, so that an error in the data leaves no folder behind.
    inputs = None if run.recipe_path.exists() else load_inputs(recipe, job.root, group, progress)
    lock = None
    with ExitStack() as stack:
        if group.is_first:
            make_folder(run.folder)
            is_new = not (run.folder / "lock").exists()
            lock = stack.enter_context(locked(run.folder / "lock"))
            if not lock.held:
                progress.say(
                    f"warning: {run.folder} is on a file system without locks: start no second process in that folder"
                )
        stop = stack.enter_context(listening())
        stack.enter_context(reproducible(job.hardware.accelerator))
        if group.is_first:
            try:
                run.assign(recipe)
            except TembedError:
                if is_new:  # the folder is somebody else's
                    (run.folder / "lock").unlink(missing_ok=True)
                raise
        if group.broadcast(run.result is not None and run.recipe == recipe):
            progress.say(f"{run.folder} is already finished")
            return
        inputs = inputs or load_inputs(recipe, job.root, group, progress)
        try:
            try:
                training = Training(job, run, inputs, group, progress, stop, lock)
            except Exception as error:  # such as weights that do not fit
                if group.is_first and not isinstance(error, Stopped):
                    run.withdraw()
                raise
            training.go()
        finally:
            progress.close()


class Training:
    """One start of a run."""

    def __init__(
        self,
        job: Job,
        run: Run,
        inputs: Inputs,
        group: ProcessGroup,
        progress: Progress,
        stop: StopRequest,
        lock: Lock | None,
    ):
        recipe = job.recipe
        self.recipe, self.run, self.inputs, self.group = recipe, run, inputs, group
        self.progress, self.stop = progress, stop
        self.hardware, self.checkpoint_seconds = job.hardware, job.checkpoint_seconds
        self.images = len(inputs.train.images)
        self.steps = len(inputs.train)
        torch.manual_seed(derived_seed(recipe.seed, "weights"))
        network, loaded = start_network(recipe, run, inputs.classes, inputs.side, progress, first=group.is_first)
        self.network: AnyNetwork = network
        self.model: nn.Module = network
        frozen = None
        if isinstance(network, Frozen):
            self.model, frozen = network.trained_part, network.frozen_tensors()
            inputs = self._frozen_inputs(network)
        train, val, test = on_device(group.device, inputs.train, inputs.val, inputs.test)
        inputs = self.inputs = dataclasses.replace(inputs, train=train, val=val, test=test)
        group.share_statistics(self.model)
        self.averaging = Averaging(recipe, self.model, self.steps)
        self.optimizer = make_optimizer(recipe, self.model)
        if recipe.init_rate != 1:
            slow_down(self.optimizer, self.model, loaded, recipe.init_rate)
        self.forward, self.stepper = group.setup(self.model, self.optimizer)
        balanced = balancing_weights(inputs.train.images.labels, len(inputs.classes)) if recipe.balanced else None
        if balanced is not None:
            balanced = balanced.to(next(self.model.parameters()))
        self.loss = EmbeddingLoss(recipe.weight or 0.0, label_smoothing=recipe.label_smoothing, class_weights=balanced)
        self.measure = measured_loss(self.forward, self.loss)
        if self.hardware.compile:
            self.measure = compile_loss(self.measure, len(inputs.train.order.positions(0, 0)), group.device)
        self.unread, self.read_steps = UnreadSteps(), 1 if group.device.type == "cpu" else READ_STEPS
        self.stop_seen = False
        self.shown: dict[str, float] = {}
        self.largest_gradient = CONVENTIONS[recipe.conventions].gradient_norm
        self.storage = RunStorage(recipe, run, inputs, group, self.model, self.optimizer, lock, frozen)
        self.state = self.storage.resume(self.hardware, progress)
        self.saved = time.monotonic()
        self.crowd: Crowd | None = Crowd() if torch.get_num_threads() > 1 else None

    def go(self) -> None:
        """Train from the current state to the end."""
        epochs = self.recipe.epochs
        self.progress.say(
            f"training {self.recipe.model} on {counted(self.images, 'image')} of {self.recipe.data} in "
            f"{self.run.folder}: {counted(epochs, 'epoch')} of {counted(self.steps, 'step')}, {self.hardware}, "
            f"{counted(torch.get_num_threads(), 'thread')}"
        )
        if warning := staleness_warning(self.recipe, self.steps):
            self.progress.say(warning)
        self._show()
        while not self.is_trained:
            self.train_epoch()
            self.finish_epoch()
        self.test()

    @property
    def is_trained(self) -> bool:
        """Whether the last epoch is done, so that only the test is left."""
        return self.state.epoch == self.recipe.epochs or ends_early(self.recipe, self.state.val_accuracies)

    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch."""
        state = self.state
        side = image_side(self.recipe, state.epoch, self.inputs.train_side)
        self.model.train()
        while state.step < self.steps:
            if self.group.world == 1:
                self._stop_if_asked()
            start = time.perf_counter()
            self.train_step(side)
            state.step += 1
            is_read = state.step % self.read_steps == 0 or state.step == self.steps
            if is_read:
                self._read_steps()
            sums = state.sums
            sums.seconds += time.perf_counter() - start
            self._check_cores()
            if is_read:
                self.shown = {"loss": self._mean_loss(sums), "images_per_second": sums.images / sums.seconds}
            self._show(**self.shown)
            if is_read and self.stop_seen:  # several processes stop together, after a step that all of them read
                self._stop_if_asked()
            if time.monotonic() - self.saved >= self.checkpoint_seconds:
                self.save()

    def train_step(self, side: int) -> None:
        """Take one step of the optimizer: a function of the state and of (seed, epoch, step).

        On a GPU, nothing here waits for the device.
        """
        epoch, step = self.state.epoch, self.state.step
        images, labels = self.group.to_device(*self.inputs.train.batch(epoch, step))
        torch.manual_seed(derived_seed(self.recipe.seed, epoch, step, *self.group.noise_key))  # the maximizer's noise
        rate = self._rate(epoch * self.steps + step)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate * parameters.get("scale", 1.0)
        loss, *means = self.measure(images if self.recipe.freeze else resized(images, side), labels)
        count = self.inputs.train.order.count(step)
        share = len(labels) / count
        self.unread.add(step, count, self.group.batch_means(torch.stack(means), share, self.stop.number is not None))
        self.optimizer.zero_grad()
        self.group.backward(loss, share)
        if self.largest_gradient is not None:
            self.group.clip_gradients(self.forward, self.stepper, self.largest_gradient)
        self.stepper.step()
        self.averaging.update(self.state, self.model, epoch * self.steps + step + 1)

    def _read_steps(self) -> None:
        """Add what the steps since the last read have measured to the sums of the epoch.

        Raises `TembedError` if a loss is not finite, before anything that follows from it is saved.
        """
        sums = self.state.sums
        for read in self.unread.read():
            loss = (1 - self.loss.weight) * read.head + self.loss.weight * read.patches
            if not math.isfinite(loss):
                raise TembedError(self._not_finite(loss, read.step))
            sums.images += read.images
            sums.head += read.head * read.images
            sums.patches += read.patches * read.images
            sums.correct += round(read.accuracy * read.images)
            self.stop_seen |= read.asked_to_stop > 0

    def finish_epoch(self) -> None:
        """Validate, keep the weights if they are the best so far, and save."""
        state, recipe = self.state, self.recipe
        start = time.perf_counter()
        model = self.averaging.of(state, self.model)
        if recalibrates(recipe, self.steps):
            forward = self.forward if model is self.model else None
            recalibrate(model, self.inputs.train, state.epoch, recipe.seed, self.group, forward)
        with measured_share(model) as share:
            val = self._evaluate("validation", self.inputs.val, model)
        seconds = state.sums.seconds + time.perf_counter() - start
        sums = state.sums
        before = state.metrics[-1]["total_seconds"] if state.metrics else 0.0
        state.metrics.append(
            {
                "epoch": state.epoch + 1,
                "loss": self._mean_loss(sums),
                "head": sums.head / sums.images,
                "patches": sums.patches / sums.images if recipe.weight is not None else None,
                "accuracy": sums.correct / sums.images,
                "val_accuracy": val.accuracy,
                "val_head": val.head,
                "val_patches": val.patches,
                "val_patch_accuracy": val.patch_accuracy,
                "variance_share": None if share is None else share.value(self.group),
                "lr": self._rate((state.epoch + 1) * self.steps - 1),
                "image_side": image_side(recipe, state.epoch, self.inputs.train_side),
                "images_per_second": sums.images / sums.seconds,
                "seconds": seconds,
                "total_seconds": before + seconds,
            }
        )
        if state.best_epoch is None or val.accuracy > state.best_metrics["val_accuracy"]:
            state.best_epoch, state.best = state.epoch, copy_tensors(model)
        state.epoch, state.step, state.sums = state.epoch + 1, 0, Sums()
        self.save()
        self.storage.write_outputs(state)
        self.progress.epoch(state.metrics[-1], recipe.epochs)

    def test(self) -> None:
        """Test the best epoch's weights, once."""
        self.model.load_state_dict(self.state.best)
        predicted: list[Tensor] = []
        test = self._evaluate(
            "test", self.inputs.test, self.network, lambda output: predicted.append(output.logits.argmax(1))
        )
        right = torch.cat(predicted).cpu() == self.inputs.test.images.labels if self.group.world == 1 else None
        self.storage.write_result(self.state, test, right)
        self.group.broadcast(True)  # the others return when the result is written

    def save(self) -> None:
        """Make the state the newest checkpoint."""
        self._read_steps()
        self.storage.save(self.state)
        self.saved = time.monotonic()

    # --- what may stop a run

    def _stop_if_asked(self) -> None:
        number = self.group.largest(self.stop.number)
        if number is None:
            return
        if self.is_trained:  # during the test everything is already saved
            raise Stopped(number, "during the test after the last epoch")
        self.save()
        raise Stopped(number, f"and saved after step {self.state.step} of epoch {self.state.epoch + 1}")

    def _check_cores(self) -> None:
        """Warn, once, if another process uses the cores and the threads of this one do not sleep while they wait."""
        if self.crowd is None or not self.crowd.noticed(time.monotonic()):
            return
        self.crowd = None
        if not threads_sleep(os.environ):
            self.progress.say(
                "warning: another process uses the cores of this run, whose threads spin while they wait for each "
                "other: if the run is slow, stop it with Ctrl-C, set OMP_WAIT_POLICY=PASSIVE, and run the same command "
                "again to resume"
            )

    def _not_finite(self, loss: float, step: int) -> str:
        epoch, train = self.state.epoch, self.inputs.train
        order = dataclasses.replace(train.order, rank=0, world_size=1)  # the batch of all processes
        pool = train.images.indices[order.positions(epoch, step)].tolist()
        return (
            f"the loss is {loss} at step {step} of epoch {epoch + 1}, on the images {pool} of "
            f"{self.recipe.data}; {self.storage.advice()}"
        )

    # --- frozen networks

    def _frozen_inputs(self, network: Frozen) -> Inputs:
        """Inputs with the cached features. The first process computes them, and the others wait for it."""
        from tembed.lab.training.frozen_features import frozen_inputs

        def stop_if_asked() -> None:
            if self.stop.number is not None:
                raise Stopped(self.stop.number, "while computing features; those that are complete are kept")

        network.to(self.group.device)
        made = None
        for first in (True, False):  # the others find everything in the cache
            if self.group.is_first == first:
                made = frozen_inputs(self.recipe, network, self.inputs, self.progress, stop_if_asked)
            self.group.broadcast(True)
        assert made is not None
        return made

    # --- measuring and showing

    def _evaluate(
        self, task: str, batches: Batches, model: nn.Module, keep: Callable[[Output], None] | None = None
    ) -> Evaluation:
        watch, forward = self._watch(task), self.forward if model is self.model else None
        return evaluate_batches(model, batches, self.recipe.seed, watch, group=self.group, forward=forward, keep=keep)

    def _watch(self, task: str) -> Callable[[int, int], None]:
        def watch(done: int, total: int) -> None:
            self.progress.update(task, done, total)
            # Processes on GPUs would wait for each other after each batch, so they stop after the evaluation.
            if done < total and (self.group.world == 1 or self.group.device.type == "cpu"):
                self._stop_if_asked()

        return watch

    def _show(self, **numbers: float) -> None:
        state, epochs = self.state, self.recipe.epochs
        done = state.epoch * self.images + min(state.step * self.recipe.batch_size, self.images)
        position = {"epoch": min(state.epoch + 1, epochs), "epochs": epochs}
        self.progress.update("training", done, epochs * self.images, **position, **numbers)

    def _rate(self, step: int) -> float:
        """The learning rate of a step of the current epoch, counted from the beginning of the run."""
        return learning_rate(self.recipe, step, self.recipe.epochs * self.steps, self.state.val_accuracies)

    def _mean_loss(self, sums: Sums) -> float:
        weight = self.loss.weight
        return ((1 - weight) * sums.head + weight * sums.patches) / sums.images
