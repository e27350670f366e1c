"""Networks as ONNX files, which run without tembed and torch.

The file takes ``images``: float32 ``(batch, 3, height, width)``, RGB, from 0 to 1; it normalises them itself. Its
outputs are ``logits`` and, for a network with patch scores, ``scores``; with the block also ``mixing`` (§3.3).
"""

import copy
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tembed import __version__
from tembed.common.errors import TembedError, first_line
from tembed.common.extras import needs
from tembed.common.files import make_folder, write_file
from tembed.common.progress import Progress
from tembed.maximizers.perturbed import Perturbed
from tembed.models.description import Description
from tembed.trained.hub import completed
from tembed.trained.onnx_check import TOLERANCE, largest_difference
from tembed.trained.weights_file import current_description, load

OPSET = 20
"""The version of the ONNX operators; onnxruntime 1.18 and later, also in the browser, has them all."""
AXES = {0: "batch", 2: "height", 3: "width"}
"""The axes of the images that are free, and their names in the file."""
IMAGES = "float32 (batch, channels, height, width), RGB, from 0 to 1"


@dataclass(frozen=True)
class OnnxFile:
    """What `to_onnx` wrote.

    ``free``: the axes of the images that may have any size. ``difference``: the largest deviation of onnxruntime from
    torch that was measured, as a multiple of ``max(1, largest value)``.
    """

    path: Path
    outputs: tuple[str, ...]
    free: tuple[str, ...]
    difference: float
    nodes: int
    size: int


class NamedOutputs(nn.Module):
    """A copy of a network for export: it normalises its images and returns its outputs by name."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None):
        super().__init__()
        self.model = copy.deepcopy(model).cpu().float().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.normalizes = mean is not None
        if mean is not None and std is not None:
            self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
            self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        trace = self.model.trace((images - self.mean) / self.std if self.normalizes else images)
        outputs = {"logits": trace.logits, "scores": trace.scores, "mixing": trace.mixing}
        return {name: value for name, value in outputs.items() if value is not None}


def to_onnx(
    source: str | Path | nn.Module,
    path: str | Path,
    *,
    example: int | Tensor | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> OnnxFile:
    """Write a network as an ONNX file, and compare onnxruntime's outputs with torch's before the file is kept.

    Batch and image size are free where the network allows it; otherwise the size is that of ``example``.

    Args:
        source: a network of this package or an attached one, or anything that `tembed.load` takes.
        path: the file to write.
        example: the side of the images, or images ``(N, channels, H, W)``; by default the size of the training images.
        classes: the names of the classes; by default those that the weights were trained on.
        mean: the normalisation of the images with values from 0 to 1; by default that of the training. If it is
            unknown, the file expects images that are already normalised.
        std: see ``mean``.
        progress: is told about the steps.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        needs(package)
    progress, path = progress or Progress(), Path(path)
    model = source if isinstance(source, nn.Module) else load(source)
    _check_model(model)
    description = completed(current_description(model), model, classes, mean, std)
    network = NamedOutputs(model, description.mean, description.std)
    images = _example(example, description.input_size)
    make_folder(path.parent)
    metadata = _metadata(description, images)
    try:
        proto, difference = _convert(network, images, progress)
    finally:
        progress.close()
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    content = proto.SerializeToString(deterministic=True)
    write_file(path, content)
    graph = proto.graph
    free = tuple(name for name in AXES.values() if name in _free_axes(proto))
    return OnnxFile(path, tuple(out.name for out in graph.output), free, difference, len(graph.node), len(content))


def _check_model(model: nn.Module) -> None:
    if not hasattr(model, "trace"):
        raise TembedError(
            f"{type(model).__name__} is not a network of this package: insert the block with tembed.attach, or export "
            "it with torch.onnx.export"
        )
    for module in model.modules():
        if isinstance(module, Perturbed) and module.method == "sample":
            raise TembedError(
                "the maximizer 'perturbed-sampled' draws noise in every call, which an ONNX file cannot repeat: export "
                "the same weights in a network with the maximizer 'perturbed', which computes the expectation exactly"
            )


def _example(example: int | Tensor | None, input_size: int) -> Tensor:
    if isinstance(example, Tensor):
        if example.ndim != 4 or len(example) == 0:
            raise TembedError(f"`example` has the shape {tuple(example.shape)}; it must be (N, channels, H, W)")
        return example.detach().cpu().float()
    side = example or input_size
    if not side:
        raise TembedError("the size of the images is unknown: give `example`, their side in pixels")
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def _metadata(description: Description, images: Tensor) -> dict[str, Any]:
    """What the file says about itself, every known field of the description included: strings, else JSON."""
    normalises = description.mean is not None
    return {
        "tembed": __version__,
        "images": IMAGES if normalises else f"{IMAGES.rsplit(',', 1)[0]}, already normalised",
        "image_size": list(images.shape[2:]),
        **description.to_json(),
    }


def _convert(network: NamedOutputs, images: Tensor, progress: Progress) -> tuple[Any, float]:
    """The model as a protobuf, and its largest difference from torch, with as many free axes as hold in a check."""
    tried = []
    for free in (AXES, {0: "batch"}, {}):
        try:
            proto = _translate(network, images, free, progress)
            found = _free_axes(proto)
            if ("height" in found) != ("width" in found):
                # The network resizes its images, and torch has followed the way of wide ones only.
                tried.append("only one side of the images is free")
                continue
            difference = largest_difference(network, proto.SerializeToString(), images, found)
        except Exception as error:  # torch and onnxscript raise many types for what they cannot translate
            tried.append(first_line(error))
            continue
        progress.update("export", 3, 3)
        if difference <= TOLERANCE:
            return proto, difference
        tried.append(f"onnxruntime differs from torch by {difference:.1e}")
    raise TembedError(f"this network cannot be exported to ONNX: {tried[-1]}")


def _translate(network: NamedOutputs, images: Tensor, free: dict[int, str], progress: Progress) -> Any:
    """The model as a protobuf, where these axes of the images are free unless the network fixes them."""
    # Torch takes a free axis of size 1 for a fixed one; equal sizes would hide a network that only takes squares.
    batch, channels, height, width = images.shape
    example = torch.zeros(max(2, batch), channels, height, width + 8 if 3 in free else width) if free else images
    axes = dict.fromkeys(free, torch.export.Dim.AUTO)
    progress.update("export", 0, 3)
    with warnings.catch_warnings(), torch.no_grad():
        # torch.onnx copies a tree with a class that torch itself has deprecated.
        warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated", FutureWarning)
        program = torch.export.export(network, (example,), dynamic_shapes={"images": axes or None})
        progress.update("export", 1, 3)
        onnx = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert onnx is not None
    progress.update("export", 2, 3)
    proto = onnx.model_proto
    _rename(proto, list(network(example)))
    return proto


def _rename(proto: Any, outputs: list[str]) -> None:
    """Name outputs and axes, and drop what torch notes about its own source files."""
    graph = proto.graph
    names = {old.name: new for old, new in zip(graph.output, outputs, strict=True)}
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(tensor, tensor) for tensor in tensors]
    values = [*graph.input, *graph.output, *graph.value_info]
    for value in values:
        value.name = names.get(value.name, value.name)
        del value.metadata_props[:]
    for initializer in graph.initializer:
        del initializer.metadata_props[:]
    del graph.metadata_props[:], proto.metadata_props[:]
    symbols = {
        dim.dim_param: AXES[axis]
        for axis, dim in enumerate(graph.input[0].type.tensor_type.shape.dim)
        if dim.dim_param.isidentifier()
    }
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(r"\w+", lambda found: symbols.get(found[0], found[0]), dim.dim_param)


def _free_axes(proto: Any) -> list[str]:
    return [dim.dim_param for dim in proto.graph.input[0].type.tensor_type.shape.dim if dim.dim_param]
