"""Checkpoints of a run: the newest and the one before it.

A new one is written aside and synced; then the newest becomes the previous, and the new one the newest. The names
say which is which, so nothing depends on an order of names or dates, and at every moment one of the two is whole.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tembed.errors import TembedError
from tembed.files import explained, sync_folder, write_aside
from tembed.training.sealed import seal, unseal
from tembed.training.state import Tensors

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

    def save(self, tensors: Tensors, record: dict[str, Any]) -> None:
        """Make this the newest. If the disk is full or gone, the two that are there stay as they are."""
        content = seal(tensors, {**record, "kind": KIND})
        aside = self.folder / "next.part"
        with explained(self.newest):
            try:
                write_aside(aside, content)
                if self.newest.exists():
                    os.replace(self.newest, self.previous)
                os.replace(aside, self.newest)
                sync_folder(self.folder)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise

    def load(self) -> tuple[Tensors, dict[str, Any], list[str]]:
        """Tensors and record of the newest checkpoint that is whole, and what was wrong with those that are not.

        A damaged newest one is moved out of the way, so that it never takes the place of the good previous one.
        Raises `TembedError` if there are checkpoints and none is whole.
        """
        wrong: list[str] = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
            try:
                tensors, record = unseal(path, KIND)
            except TembedError as error:
                wrong.append(str(error))
                continue
            if wrong:
                with explained(self.newest):
                    os.replace(self.newest, self.folder / "damaged.safetensors")
            return tensors, record, wrong
        raise TembedError(
            f"{'; '.join(wrong)}: no checkpoint in {self.folder} can be used; remove that folder to start this run "
            "again from its beginning, or give another --out"
        )

    @property
    def any(self) -> bool:
        """Whether something was saved."""
        return self.newest.exists() or self.previous.exists()

    def last_good(self) -> str:
        """The checkpoint that a stopped run would go on from, for an error's text."""
        return str(self.newest if self.newest.exists() else self.previous) if self.any else "none yet"
