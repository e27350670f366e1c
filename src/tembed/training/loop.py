"""The training loop: steps, epochs, and a state that can be taken up at any of them."""

import dataclasses
import math
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tembed.data.batches import Batches
from tembed.errors import TembedError
from tembed.files import explained, locked, write_json
from tembed.losses import EmbeddingLoss
from tembed.machine import ASLEEP, CHOICE, SPINNING, Crowd, Crowded
from tembed.reporting.progress import Progress
from tembed.training.checkpoints import State, Sums, copy_tensors, gather, restore
from tembed.training.distributed.compiling import compile_stages
from tembed.training.distributed.hardware import Hardware, under_torchrun
from tembed.training.distributed.launcher import Job, launch
from tembed.training.distributed.process_group import Lost, Team, assemble, lost
from tembed.training.environment import reproducible
from tembed.training.evaluation import Evaluation, evaluate_batches
from tembed.training.inputs import Inputs, load_inputs, resized
from tembed.training.optimizers import Muon
from tembed.training.recipe import Recipe
from tembed.training.run import Run, default_folder
from tembed.training.schedule import derived_seed, image_side, learning_rate
from tembed.training.stopping import Stopped, Wish, listening
from tembed.training.weights import build, save_weights

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
    """Train a recipe in the folder ``out``, or go on with it there, and return the finished run.

    The same call again takes up a run that was stopped or killed, and gives the weights, metrics and result that it
    would have had, bit for bit (same machine, versions, threads and hardware). A finished run is returned as it is.

    Args:
        recipe: what to train.
        out: the run folder; by default ``runs/<model>-<data>-<preset>-<seed>``.
        root: where datasets are stored; by default ``$TEMBED_DATA``, else the user's cache folder.
        hardware: what to train on; by default one process, on a GPU if there is one. Several devices are given a
            process each; in a process that torchrun started, this is one of them.
        progress: the observer of the run; by default nothing is shown.
        checkpoint_seconds: how often to save within an epoch.

    Raises `Stopped` after SIGTERM or Ctrl-C, once the state is saved, and in the tembed command `Crowded`.
    """
    recipe, hardware = recipe.complete(), (hardware or Hardware()).complete()
    folder = Path(out) if out is not None else default_folder(recipe)
    job = Job(recipe, folder, root, hardware, checkpoint_seconds)
    if hardware.world > 1 and not under_torchrun():
        launch(job, progress or Progress())
    else:
        work(job, progress or Progress())
    return Run(folder)


def work(job: Job, progress: Progress) -> None:
    """A run in this process, which is all of it or one of several that do the same at the same time."""
    team = assemble(job.hardware)
    try:
        _work(job, team, progress if team.first else Progress())
    except RuntimeError as error:
        if team.world == 1 or not lost(error):
            raise
        raise Lost(
            f"process {team.rank} of {team.world} has lost the others: one of them ended, or the network between them "
            "failed; run the same command again to go on from the last checkpoint"
        ) from None


def _work(job: Job, team: Team, progress: Progress) -> None:
    recipe, run = job.recipe, Run(job.out)
    # Before there is a folder, so that a mistake in the data leaves none behind.
    inputs = None if run.recipe_path.exists() else load_inputs(recipe, job.root, team)
    with ExitStack() as stack:
        if team.first:
            with explained(run.folder):
                run.folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run.folder / "lock"))
        wish = stack.enter_context(listening())
        stack.enter_context(reproducible(job.hardware.accelerator == "cpu"))
        if team.first:
            run.claim(recipe)
        if team.share(run.result is not None):
            progress.say(f"{run.folder} is finished already")
            return
        inputs = inputs or load_inputs(recipe, job.root, team)
        try:
            Training(job, run, inputs, team, progress, wish).go()
        finally:
            progress.close()


class Training:
    """One start of a run."""

    def __init__(self, job: Job, run: Run, inputs: Inputs, team: Team, progress: Progress, wish: Wish):
        recipe = job.recipe
        self.recipe, self.run, self.inputs, self.progress, self.wish = recipe, run, inputs, progress, wish
        self.hardware, self.team, self.checkpoint_seconds = job.hardware, team, job.checkpoint_seconds
        self.side = min(inputs.splits.train.size)
        self.images = len(inputs.train.images)
        self.steps = len(inputs.train)
        torch.manual_seed(derived_seed(recipe.seed, "weights"))
        self.model = build(recipe, len(inputs.classes), self.side)
        self.optimizer = make_optimizer(recipe, self.model)
        if self.hardware.compile:
            compile_stages(self.model, len(inputs.train.indices(0, 0)))
        self.forward, self.stepper = team.setup(self.model, self.optimizer)
        self.loss = EmbeddingLoss(recipe.weight or 0.0)
        self.state = State()
        self._resume()
        self.saved = time.monotonic()
        self.crowd: Crowd | None = Crowd() if torch.get_num_threads() > 1 else None

    def go(self) -> None:
        """From where the state is to the end."""
        state, epochs = self.state, self.recipe.epochs
        self.progress.say(
            f"training {self.recipe.model} on {self.images:,} images of {self.recipe.data} in {self.run.folder}: "
            f"{epochs} epochs of {self.steps:,} steps, {self.hardware}, {torch.get_num_threads()} threads"
        )
        self._show()
        while state.epoch < epochs:
            self.train_epoch()
            self.finish_epoch()
        self.write_result()

    def train_epoch(self) -> None:
        """The steps of an epoch that are not done yet."""
        state = self.state
        side = image_side(self.recipe, state.epoch, self.side)
        self.model.train()
        while state.step < self.steps:
            self._heed()
            start = time.perf_counter()
            self.train_step(side)
            state.step += 1
            state.sums.seconds += time.perf_counter() - start
            self._notice_crowd()
            sums = state.sums
            self._show(loss=self._mean_loss(sums), images_per_second=sums.images / sums.seconds)
            if time.monotonic() - self.saved >= self.checkpoint_seconds:
                self.save()

    def train_step(self, side: int) -> None:
        """One step of the optimizer; everything in it depends on the state, and on (seed, epoch, step)."""
        state, epoch, step = self.state, self.state.epoch, self.state.step
        images, labels = self.team.place(*self.inputs.train.batch(epoch, step))
        # The sampled maximizer's noise.
        torch.manual_seed(derived_seed(self.recipe.seed, epoch, step, *self.team.mark))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, epoch * self.steps + step, self.recipe.epochs * self.steps)
        output = self.forward(resized(images, side))
        terms = self.loss.terms(output, labels)
        loss = self.loss.combine(terms)
        count = len(labels)
        share = count / self.inputs.train.count(step)
        mean, *sums = self.team.add(
            [
                loss.item() * share,
                count,
                terms.head.item() * count,
                0.0 if terms.patches is None else terms.patches.item() * count,
                int((output.logits.argmax(1) == labels).sum()),
            ]
        )
        if not math.isfinite(mean):
            raise TembedError(self._not_finite(mean))
        self.optimizer.zero_grad()
        self.team.backward(loss, share)
        self.stepper.step()
        state.sums.images += int(sums[0])
        state.sums.head += sums[1]
        state.sums.patches += sums[2]
        state.sums.correct += int(sums[3])

    def finish_epoch(self) -> None:
        """Measure the epoch, keep its weights if they are the best, save."""
        state, recipe = self.state, self.recipe
        start = time.perf_counter()
        val = self._evaluate("validation", self.inputs.val)
        seconds = state.sums.seconds + time.perf_counter() - start
        sums, total = state.sums, self.recipe.epochs * self.steps
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
                "lr": learning_rate(recipe, (state.epoch + 1) * self.steps - 1, total),
                "image_side": image_side(recipe, state.epoch, self.side),
                "images_per_second": sums.images / sums.seconds,
                "seconds": seconds,
                "total_seconds": before + seconds,
            }
        )
        if state.best_epoch is None or val.accuracy > state.best_metrics["val_accuracy"]:
            state.best_epoch, state.best = state.epoch, copy_tensors(self.model)
        state.epoch, state.step, state.sums = state.epoch + 1, 0, Sums()
        self.save()
        self._write_derived()
        self.progress.epoch(state.metrics[-1], recipe.epochs)

    def write_result(self) -> None:
        """Test the best epoch's weights, once."""
        state = self.state
        self.model.load_state_dict(state.best)
        test = self._evaluate("test", self.inputs.test)
        best = state.best_metrics
        result = {
            "best_epoch": best["epoch"],
            "val_accuracy": best["val_accuracy"],
            "test_accuracy": test.accuracy,
            "test": test.plain(),
            "epochs": state.epoch,
            "train_images": self.images,
            "total_seconds": state.metrics[-1]["total_seconds"],
        }
        if self.team.first:
            write_json(self.run.result_path, result)

    def save(self) -> None:
        """Make the state the newest checkpoint; the first process does it for all."""
        self.saved, state = time.monotonic(), self.state
        if not self.team.first:
            return
        try:
            tensors = gather(state, self.model, self.optimizer)
        except TembedError as error:
            raise TembedError(f"{error} of epoch {state.epoch + 1}; {self._way_out()}") from None
        record = {**state.plain(), "data_sha256": self.inputs.splits.sha256, "precision": self.team.state()}
        self.run.checkpoints.save(tensors, record)
        self.saved = time.monotonic()

    # --- taking up a run

    def _resume(self) -> None:
        before = self.team.share(self.run.checkpoints.any)
        if before:
            self.state = self._restored()
            self._write_derived()
        if not self.team.first:
            return
        differing = self.run.record_start(
            self.inputs.splits.sha256, self.state.epoch, self.state.step, self.hardware.record()
        )
        if differing and before:
            self.progress.say(f"warning: not as at the last start, so the last bits may differ: {'; '.join(differing)}")

    def _restored(self) -> State:
        checkpoints, sha256 = self.run.checkpoints, self.inputs.splits.sha256
        tensors, record, wrong = self.team.share(checkpoints.load() if self.team.first else None)
        for line in wrong:
            self.progress.say(f"warning: {line}; going on from {checkpoints.previous}")
        if record.get("data_sha256") != sha256:
            raise TembedError(
                f"{self.recipe.data} is not the dataset that {self.run.folder} was trained on (sha256 {sha256}, then "
                f"{record.get('data_sha256')}): restore that dataset, or give another --out"
            )
        try:
            state = restore(record, tensors, self.model, self.optimizer)
            self.team.restore(record.get("precision", {}))
            if state.epoch > self.recipe.epochs or state.step > self.steps:
                raise TembedError("its position makes no sense")
        except TembedError as error:
            raise TembedError(
                f"a checkpoint in {checkpoints.folder} cannot be used: {error}; remove that folder to start this run "
                "again from its beginning, or give another --out"
            ) from None
        where = f"epoch {state.epoch + 1}, step {state.step}" if state.epoch < self.recipe.epochs else "its last epoch"
        self.progress.say(f"going on with {self.run.folder} from {where}")
        return state

    def _write_derived(self) -> None:
        """The files that follow from the state: metrics, and the best weights."""
        if not self.state.metrics or not self.team.first:
            return
        splits, best = self.inputs.splits, self.state.best_metrics
        self.run.write_metrics(self.state.metrics)
        record: dict[str, Any] = {
            "recipe": self.recipe.plain(),
            "classes": list(self.inputs.classes),
            "input_size": self.side,
            "mean": list(splits.mean),
            "std": list(splits.std),
            "data_sha256": splits.sha256,
            "epoch": best["epoch"],
            "val_accuracy": best["val_accuracy"],
        }
        save_weights(self.run.best_path, self.state.best, record)

    # --- what may stop a run

    def _heed(self) -> None:
        number = self.team.agree(self.wish.number)
        if number is None:
            return
        if self.state.epoch == self.recipe.epochs:  # the test, with everything saved
            raise Stopped(number, "in the test after the last epoch")
        self.save()
        raise Stopped(number, f"and saved after step {self.state.step} of epoch {self.state.epoch + 1}")

    def _evaluate(self, what: str, batches: Batches) -> Evaluation:
        forward, watch = self.forward, self._watch(what)
        return evaluate_batches(self.model, batches, self.recipe.seed, watch, team=self.team, forward=forward)

    def _watch(self, what: str) -> Any:
        def watch(done: int, total: int) -> None:
            self.progress.update(what, done, total)
            if done < total:
                self._heed()

        return watch

    def _notice_crowd(self) -> None:
        """Another process on the cores makes threads that spin while they wait very slow."""
        if self.crowd is None or not self.crowd.noticed(time.monotonic()):
            return
        self.crowd = None
        if os.environ.get(CHOICE) == SPINNING[CHOICE] and self.team.world == 1:
            self.save()
            raise Crowded
        if os.environ.get("OMP_WAIT_POLICY", "").upper() != ASLEEP["OMP_WAIT_POLICY"]:
            self.progress.say(
                "warning: another process works on the cores of this run, whose threads may spin while they wait for "
                "each other; if it is slow, stop it, set OMP_WAIT_POLICY=PASSIVE before torch is imported, and go on"
            )

    def _show(self, **numbers: float) -> None:
        state, epochs = self.state, self.recipe.epochs
        done = state.epoch * self.images + state.sums.images
        where = {"epoch": min(state.epoch + 1, epochs), "epochs": epochs}
        self.progress.update("training", done, epochs * self.images, **where, **numbers)

    def _not_finite(self, loss: float) -> str:
        epoch, step = self.state.epoch, self.state.step
        batch = dataclasses.replace(self.inputs.train, rank=0, world_size=1)  # the whole one
        pool = batch.images.indices[batch.indices(epoch, step)].tolist()
        return (
            f"the loss is {loss} at step {step} of epoch {epoch + 1}, on the images {pool} of "
            f"{self.recipe.data}; {self._way_out()}"
        )

    def _way_out(self) -> str:
        last = self.run.checkpoints.last_good()
        return f"last good checkpoint: {last}; a lower --lr, in another --out, may help"

    def _mean_loss(self, sums: Sums) -> float:
        weight = self.loss.weight
        return ((1 - weight) * sums.head + weight * sums.patches) / sums.images


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Adam, with L2 decay in its gradient as in the paper (§4), or what the recipe has in its place."""
    if recipe.optimizer == "muon":
        return Muon(model, recipe.lr, recipe.betas, recipe.weight_decay)
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True)
