"""``tembed explain``: what the patches of an image match."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Explain:
    """Draw what a trained run sees in images: the scores, mixtures and entropy of the patches, and the prediction."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE [IMAGE ...]")]
    """image files of any size"""
    out: Path = Path("explained")
    """the folder for the pictures, one per image"""


def main(arguments: list[str]) -> int:
    command = tyro.cli(Explain, prog="tembed explain", args=arguments)
    from tembed.analysis.explanation import explain, write_explanations
    from tembed.errors import TembedError

    if not command.images:
        raise TembedError("give at least one image file: tembed explain RUN IMAGE ...")
    for found, path in write_explanations(explain(command.source, command.images), command.out):
        print(f"{found.name} ({found.note}): {found.prediction} {found.probabilities.max():.2f}; {path}")
    return 0
