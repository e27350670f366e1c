"""The weights that an attached network starts from: a file of any common kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tembed.common.errors import TembedError, first_line
from tembed.common.files import check_regular
from tembed.maximizers.bn_relu import current_names
from tembed.trained.checksummed import read_checksummed
from tembed.trained.weights_file import KIND, find_weights, unwrapped_names

RANDOM = "random"
NESTED = ("state_dict_ema", "state_dict", "model_state_dict", "model")
"""Keys under which training scripts put the state dict in their checkpoints."""


def read_weights(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a run, shipped weights or any weights file, and the record of a file that tembed wrote."""
    path = find_weights(source)
    try:
        check_regular(path)
    except OSError as error:
        raise TembedError(f"{path} cannot be read as weights ({error.strerror})") from None
    try:
        return read_checksummed(path, KIND)
    except TembedError:
        if path.suffix == ".safetensors" and not _is_foreign_file(path):
            raise
    try:
        content = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # the readers raise many types on damaged files
        raise TembedError(f"{path} cannot be read as weights ({first_line(error)})") from None
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    tensors = {str(name): value for name, value in content.items()} if isinstance(content, Mapping) else {}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise TembedError(f"{path} does not hold a state dict: give a file with tensors by name")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_complex():
            kind = "meta" if tensor.is_meta else f"{tensor.layout}, {tensor.dtype}"
            raise TembedError(f"{path} holds {name} in a form that no network loads ({kind}): save it as plain numbers")
    return unwrapped_names(tensors), {}


def trained_size(source: str) -> int | None:
    """The side of the images that weights were trained on; None if they do not say, or cannot be read."""
    try:
        record = read_weights(source)[1]
    except TembedError:
        return None
    return record.get("options", {}).get("image_size") or record.get("input_size")


def _is_foreign_file(path: Path) -> bool:
    """Whether a safetensors file was written by another program, rather than being a damaged one of ours."""
    from safetensors import safe_open

    from tembed.trained.checksummed import KEY

    try:
        with safe_open(path, framework="pt") as file:
            return KEY not in (file.metadata() or {})
    except SafetensorError as error:
        raise TembedError(f"{path} cannot be read as weights ({first_line(error)})") from None


def load_initial(model: nn.Module, tensors: Mapping[str, Tensor], source: str, network: str, after: set[str]) -> None:
    """Load weights into a network. Raises one `TembedError` that says which names or shapes do not fit.

    ``after``: names of tensors behind the layer of a frozen network, which are not needed and may be of any shape.
    """
    wanted, tensors = model.state_dict(), current_names(tensors, model)
    counters = {name for name in wanted if name.endswith("num_batches_tracked")}  # older files lack them
    missing = [name for name in wanted if name not in tensors and name not in after | counters]
    extra = [name for name in tensors if name not in wanted and name not in after]
    shapes = [
        f"{name} is {tuple(tensors[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in wanted
        if name in tensors and tensors[name].shape != wanted[name].shape and name not in after
    ]
    if shapes and not missing and not extra and all(_is_head(text, wanted) for text in shapes):
        raise TembedError(
            f"{source} was trained on another number of classes ({shapes[0]}): give weights for these classes, or "
            "`freeze`, which trains a new head"
        )
    problems = [
        f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for what, names in (("it lacks", missing), ("it has in addition", extra), ("other shapes:", shapes))
        if names
    ]
    if problems and not (extra and after and not missing and not shapes):
        raise TembedError(
            f"{source} does not hold the weights of {network} ({'; '.join(problems)}): give a file of that network as "
            "`init`"
        )
    fitting = {
        name: tensor for name, tensor in tensors.items() if name in wanted and tensor.shape == wanted[name].shape
    }
    model.load_state_dict(fitting, strict=False)


def _is_head(text: str, wanted: Mapping[str, Tensor]) -> bool:
    """Whether a tensor that does not fit belongs to the last layer with weights."""
    last = list(wanted)[-1].rpartition(".")[0]
    return text.split(" ")[0].rpartition(".")[0] == last
