"""``tembed explain``: what the patches of an image match."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.cli.options import read_options
from tembed.common.accelerators import Accelerator


@dataclass(frozen=True)
class Explain:
    """Draw what a trained run sees in photographs: heat maps, the class of each patch, and head against patches."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE [IMAGE ...]")]
    """image files of any size, folders of images, or patterns such as '*.jpg'"""
    out: Path = Path("explained")
    """the folder for the pictures, one per image"""
    overlays: bool = False
    """also write each photograph, in its own size, under the heat map of the head's class"""
    words: bool = False
    """also write the mixture of classes of each patch as text"""
    window: Literal["nominal", "effective"] = "nominal"
    """the outline of a patch: the block's window, or the smallest one that holds half of the evidence, which tembed
    analyze measures"""
    accelerator: Accelerator = "auto"
    """what to compute on; auto: a GPU if there is one"""


def main(arguments: list[str]) -> int:
    command = read_options(Explain, "tembed explain", arguments)
    from tembed.common.errors import TembedError, one_line
    from tembed.lab.analysis.explaining import each_explanation
    from tembed.lab.analysis.explanation_files import write_explanations

    if not command.images:
        raise TembedError("give at least one image file: tembed explain RUN IMAGE ...")
    broken: list[str] = []
    found = each_explanation(
        command.source, command.images, accelerator=command.accelerator, window=command.window, broken=broken
    )
    written = 0
    for one, path in write_explanations(found, command.out, overlays=command.overlays, words=command.words):
        written += 1
        print(one_line(f"{one.name} ({one.note}): {one.verdict}; {path}"), flush=True)
    if broken and not written:
        raise TembedError(broken[0])
    for line in broken:
        print(f"skipped {line}", file=sys.stderr)
    return 1 if broken else 0
