"""Reads and writes the run folder during training: resuming, saving, and the files derived from the state."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.common.errors import TembedError
from tembed.common.files import Lock, write_json
from tembed.common.plain_values import check_fields
from tembed.common.progress import Progress
from tembed.lab.training.evaluation import Evaluation, pack_correct
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.inputs import Inputs
from tembed.lab.training.process_group import ProcessGroup
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, checkpoint_digest
from tembed.lab.training.state import State, gather, restore
from tembed.models.description import Description
from tembed.trained.weights_file import save_weights


class RunStorage:
    """Keeps the state of one model and optimizer in a run folder. Only the first process writes."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        inputs: Inputs,
        group: ProcessGroup,
        model: nn.Module,
        optimizer: Optimizer,
        lock: Lock | None = None,
        frozen: Mapping[str, Tensor] | None = None,
    ):
        """``frozen``: tensors that are not trained, which the weights file holds too."""
        self.recipe, self.run, self.inputs, self.group = recipe, run, inputs, group
        self.model, self.optimizer, self.lock, self.frozen = model, optimizer, lock, frozen or {}

    def resume(self, hardware: Hardware, progress: Progress) -> State:
        """The state to start from: the newest checkpoint, loaded into model and optimizer, or a new state."""
        resumed = self.group.broadcast(self.run.checkpoints.any)
        state = self._restore(progress) if resumed else State()
        if self.group.is_first and (self.run.recipe != self.recipe or self.run.result_path.exists()):
            self.run.continue_as(self.recipe)
        self.write_outputs(state)
        if self.group.is_first:
            sha256 = self.inputs.splits.sha256
            changed = self.run.record_start(sha256, state.epoch, state.step, hardware.record())
            if changed and resumed:
                progress.say(
                    "warning: the environment has changed since the last start, so the last bits may differ: "
                    + "; ".join(changed)
                )
        return state

    def save(self, state: State) -> None:
        """Make the state the newest checkpoint."""
        if not self.group.is_first:
            return
        try:
            tensors = gather(state, self.model, self.optimizer)
        except TembedError as error:
            raise TembedError(f"{error} of epoch {state.epoch + 1}; {self.advice()}") from None
        record = {
            **state.to_json(),
            "recipe": checkpoint_digest(self.recipe),
            "data_sha256": self.inputs.splits.sha256,
            "precision": self.group.precision_state(),
        }
        self._check_folder()
        self.run.checkpoints.save(tensors, record)

    def write_outputs(self, state: State) -> None:
        """Write the files derived from the state: the metrics and the best weights."""
        if not state.metrics or not self.group.is_first:
            return
        self._check_folder()
        splits, best = self.inputs.splits, state.best_metrics
        self.run.write_metrics(state.metrics)
        description = Description(
            model=self.recipe.model,
            options=self.recipe.model_options(),
            input_size=self.inputs.side,
            classes=self.inputs.classes,
            mean=self.inputs.mean,
            std=self.inputs.std,
            fit=splits.fit,
            recipe=self.recipe.to_json(),
            data_sha256=splits.sha256,
            epoch=best["epoch"],
            val_accuracy=best["val_accuracy"],
        )
        save_weights(self.run.best_path, {**self.frozen, **state.best}, description)

    def write_result(self, state: State, test: Evaluation, right: Tensor | None) -> None:
        """Write the result of the run: the best epoch, and the test of its weights.

        ``right``: whether each test image was classified correctly, for paired tests; None if that is not known.
        """
        best = state.best_metrics
        result = {
            "best_epoch": best["epoch"],
            "val_accuracy": best["val_accuracy"],
            "test_accuracy": test.accuracy,
            "test": test.to_json() | ({} if right is None else {"correct": pack_correct(right.numpy())}),
            "epochs": state.epoch,
            "train_images": len(self.inputs.train.images),
            "total_seconds": state.metrics[-1]["total_seconds"],
        }
        if self.group.is_first:
            self._check_folder()
            write_json(self.run.result_path, result)

    def advice(self) -> str:
        """How to continue after a loss or weight that is not finite."""
        last = self.run.checkpoints.last_good()
        return f"last good checkpoint: {last}; try a lower `lr` with another `out`"

    def _check_folder(self) -> None:
        """Raise `TembedError` if the folder was removed and is now the folder of another run."""
        if self.lock is not None:
            self.lock.check()

    def _restore(self, progress: Progress) -> State:
        checkpoints, sha256 = self.run.checkpoints, self.inputs.splits.sha256
        tensors, record, errors = self.group.broadcast(checkpoints.load() if self.group.is_first else None)
        for line in errors:
            progress.say(f"warning: {line}; resuming from {checkpoints.previous}")
        if record.get("data_sha256") != sha256:
            raise TembedError(
                f"{self.recipe.data} is not the dataset that {self.run.folder} was trained on (sha256 {sha256} now, "
                f"{record.get('data_sha256')} then): restore that dataset, or give another `out`"
            )
        if record.get("recipe") != checkpoint_digest(self.recipe):
            raise TembedError(
                f"a checkpoint in {checkpoints.folder} is of another recipe than {self.run.recipe_path}: restore the "
                "right one, remove that folder to restart this run from the beginning, or give another `out`"
            )
        epochs, steps = self.recipe.epochs, len(self.inputs.train)
        try:
            state = restore(record, tensors, self.model, self.optimizer)
            check_fields(record, {"precision": dict[str, Any]})
            self.group.restore_precision(record["precision"])
            if state.epoch > epochs or state.step > steps:
                raise TembedError("its position makes no sense")
        except TembedError as error:
            raise TembedError(
                f"a checkpoint in {checkpoints.folder} cannot be used: {error}; remove that folder to restart this "
                "run from the beginning, or give another `out`"
            ) from None
        position = f"epoch {state.epoch + 1}, step {state.step}" if state.epoch < epochs else "the end of training"
        progress.say(f"resuming {self.run.folder} from {position}")
        return state
