"""``tembed export``: trained weights for use elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tembed.cli.options import read_options


@dataclass(frozen=True)
class Export:
    """Write the network of a run as an ONNX file, or as a folder in the layout of the Hugging Face hub."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, a folder of --hub, or shipped weights such as rn26-embed/cifar10"""
    onnx: Path | None = None
    """the ONNX file to write: logits, patch scores and mixing weights of images from 0 to 1 (default: none)"""
    hub: Path | None = None
    """the folder to write: config.json, model.safetensors and a model card (default: none)"""
    quiet: bool = False
    """print only what was written"""


def main(arguments: list[str]) -> int:
    command = read_options(Export, "tembed export", arguments)
    from tembed.common.errors import TembedError
    from tembed.lab.terminal import stderr_progress
    from tembed.trained.hub import save_pretrained
    from tembed.trained.onnx_file import to_onnx
    from tembed.trained.weights_file import load

    if command.onnx is None and command.hub is None:
        raise TembedError("say what to write: `onnx` FILE, `hub` FOLDER, or both")
    model = load(command.source)
    if command.hub is not None:
        print(f"{save_pretrained(model, command.hub)}: config.json, model.safetensors and README.md, the model card")
    if command.onnx is not None:
        made = to_onnx(model, command.onnx, progress=stderr_progress(command.quiet))
        free = f"any {', '.join(made.free)}" if made.free else "fixed shape"
        print(f"{made.path}: {', '.join(made.outputs)}; {free}; {made.nodes} nodes, {made.size / 1e6:.1f} MB")
        print(f"onnxruntime agrees with torch to {made.difference:.1e} of the largest value")
    return 0
