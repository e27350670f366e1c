"""``tembed predict``: classify image files."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tembed.cli.options import read_options
from tembed.common.accelerators import Accelerator


@dataclass(frozen=True)
class Predict:
    """Classify image files of any size: the most likely classes, what the patches see, and how sure both are."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH [PATH ...]")]
    """image files, folders of images, or patterns such as '*.jpg'"""
    out: Path | None = None
    """write the predictions to this file (.csv or .json) (default: the terminal)"""
    top: int = 3
    """number of classes per image"""
    accelerator: Accelerator = "auto"
    """what to compute on; auto: a GPU if there is one"""
    quiet: bool = False
    """show no progress"""


def main(arguments: list[str]) -> int:
    command = read_options(Predict, "tembed predict", arguments)
    from tembed.common.errors import TembedError, counted
    from tembed.lab.terminal import stderr_progress
    from tembed.trained.predicting import each_prediction
    from tembed.trained.prediction_table import check_table, describe, write_table

    if not command.images:
        raise TembedError("give at least one image file or folder: tembed predict RUN PATH ...")
    if command.top < 1:
        raise TembedError(f"`top` is {command.top}; it must be at least 1")
    if command.out is not None:
        check_table(command.out)
    broken: list[str] = []
    found = []
    interrupted = False
    try:
        with stderr_progress(command.quiet) as progress:
            each = each_prediction(
                command.source, command.images, accelerator=command.accelerator, broken=broken, progress=progress
            )
            for one in each:
                found.append(one)
                if command.out is None:
                    print(describe(one, command.top), flush=True)
    except KeyboardInterrupt:
        interrupted = True
    if command.out is not None and found:
        write_table(found, command.out, command.top)
        print(f"{counted(len(found), 'image')}: {command.out}")
    if broken and not found:
        raise TembedError(broken[0])
    for line in broken:
        print(f"skipped {line}", file=sys.stderr)
    if interrupted:
        raise KeyboardInterrupt
    return 1 if broken else 0
