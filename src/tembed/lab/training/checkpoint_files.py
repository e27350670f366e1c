"""The two checkpoint files of a run: the newest and the one before it.

A new checkpoint is written aside and synced; then the newest is renamed to previous and the new one to newest. The
file names tell them apart, so nothing depends on dates, and at every moment at least one of the two is complete.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError
from tembed.common.files import explained, move, write_file
from tembed.lab.training.state import Tensors
from tembed.trained.checksummed import checksummed_bytes, read_checksummed

KIND = "a checkpoint"


@dataclass(frozen=True)
class Checkpoints:
    """The ``checkpoints`` folder of a run."""

    folder: Path

    @property
    def newest(self) -> Path:
        return self.folder / "newest.safetensors"

    @property
    def previous(self) -> Path:
        return self.folder / "previous.safetensors"

    @property
    def any(self) -> bool:
        """Whether there is a checkpoint."""
        return self.newest.exists() or self.previous.exists()

    def save(self, tensors: Tensors, record: dict[str, Any]) -> None:
        """Make this the newest checkpoint. If the disk is full or gone, the two old ones stay intact."""
        content = checksummed_bytes(tensors, {**record, "kind": KIND})
        following = self.folder / "next.safetensors"
        write_file(following, content)
        with explained(self.newest):
            if self.newest.exists():
                move(self.newest, self.previous)
            move(following, self.newest)

    def load(self) -> tuple[Tensors, dict[str, Any], list[str]]:
        """Tensors and record of the newest undamaged checkpoint, and an error line for each damaged one.

        A damaged newest checkpoint is moved away, so that it never replaces the good previous one. Raises
        `TembedError` if all checkpoints are damaged.
        """
        errors: list[str] = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
            try:
                tensors, record = read_checksummed(path, KIND)
            except TembedError as error:
                errors.append(str(error))
                continue
            if errors:
                with explained(self.newest):
                    move(self.newest, self.folder / "damaged.safetensors")
            return tensors, record, errors
        raise TembedError(
            f"{'; '.join(errors)}: no checkpoint in {self.folder} can be used; remove that folder to restart this "
            "run from the beginning, or give another `out`"
        )

    def last_good(self) -> str:
        """The checkpoint that a stopped run would resume from, for an error message."""
        return str(self.newest if self.newest.exists() else self.previous) if self.any else "none yet"
