"""Weights on disk: safetensors files that also hold the network's description."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tembed
from tembed.attachment.attached import Attached
from tembed.attachment.building import build_attached, source_of
from tembed.attachment.frozen import Frozen
from tembed.attachment.sources import check_source
from tembed.common.errors import TembedError, first_line
from tembed.common.files import read_json, write_file
from tembed.maximizers.bn_relu import current_names
from tembed.models.description import Description
from tembed.models.foreign import is_foreign, parse_foreign, user_module
from tembed.models.network import Network
from tembed.models.registry import canonical_name, create_model
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.determinism import choose_device

KIND = "weights"
BEST = "best.safetensors"
"""The weights of a run folder."""
MAX_INPUT_SIZE = 2048
"""Largest side of the images that a weights file may ask for; it decides how much memory and time its use takes."""
LARGEST = 1e12
"""Largest number that a weights file may shift pixels or scale them by; float32 overflows at 3e38."""
AnyNetwork = Network | Attached | Frozen
"""A network of the paper, or one from elsewhere with the block."""
WRAPPERS = ("_orig_mod", "module", "_forward_module")
"""Prefixes that torch.compile, data parallelism and launchers add to the names of what they wrap."""


# --- writing


def save_weights(
    path: str | Path, tensors: Mapping[str, Tensor], description: Description, *, half: bool = False
) -> None:
    """Write a weights file.

    ``half`` stores matrices and kernels in half precision. Vectors (biases and statistics) stay in full precision:
    they are small, and a variance may be out of range.
    """
    _write(Path(path), tensors, description.to_json(), half)


def export_weights(source: str | Path, path: str | Path, *, half: bool = False) -> None:
    """Copy the weights of a run or a file to another file, in half precision if asked for."""
    tensors, record = read_checksummed(find_weights(source), KIND)
    _write(Path(path), tensors, record, half)


def _write(path: Path, tensors: Mapping[str, Tensor], record: dict[str, Any], half: bool) -> None:
    named = unwrapped_names(tensors)
    if half:
        named = {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in named.items()}
    write_file(path, checksummed_bytes(named, {**record, "kind": KIND}))


# --- reading


def load(source: str | Path) -> AnyNetwork:
    """The trained model of a run folder, a weights file, or shipped weights such as ``"rn26-embed/cifar10"``.

    A folder of `tembed.save_pretrained` works too. The model is in evaluation mode. ``model.description`` has its
    classes, normalisation, recipe and scores.
    """
    from tembed.trained.hub import is_pretrained, read_pretrained

    if is_pretrained(Path(source)):
        path = Path(source)
        tensors, record = read_pretrained(path)
    else:
        path = find_weights(source)
        tensors, record = read_checksummed(path, KIND)
        record |= _result_beside(path, record)
    try:
        description = Description.from_json(record)
    except TembedError as error:
        raise TembedError(f"{path} does not hold the weights that it describes ({error})") from None
    _check_known(path, description.model)
    try:
        _check_values(tensors, description)
        _check_shapes(tensors, description)
        model = build(description)
        fill(model, tensors)
    except Exception as error:  # a checksum is not a signature, so the file may hold anything
        raise TembedError(f"{path} does not hold the weights that it describes ({first_line(error)})") from None
    model.description = dataclasses.replace(description, weights_sha256=checksum(model.state_dict()))
    return model.eval()


def build(description: Description) -> AnyNetwork:
    """The network of a description, freshly initialised. An attached one has no particular weights."""
    classes, name = len(description.classes), description.model
    if is_foreign(name):
        return build_attached(name, classes, description.input_size, description.options)
    model = create_model(name, classes, description.input_size, **description.options)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # like the batches


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a state dict, with a one-line error that names what does not fit."""
    tensors = current_names(tensors, model)
    _check_fit(model, tensors)
    model.load_state_dict(tensors)


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    ours = model.state_dict()
    missing, extra = [name for name in ours if name not in tensors], [name for name in tensors if name not in ours]
    for names, what in ((missing, "are missing"), (extra, "are not in the network")):
        if names:
            raise TembedError(f"{len(names)} weights {what}, such as {names[0]}")
    for name, tensor in ours.items():
        found = tensors[name]
        if tensor.shape != found.shape:
            raise TembedError(f"{name} has the shape {tuple(found.shape)} instead of {tuple(tensor.shape)}")
        if tensor.dtype != found.dtype and not (tensor.is_floating_point() and found.is_floating_point()):
            raise TembedError(f"{name} is of {found.dtype} instead of {tensor.dtype}")


def _check_shapes(tensors: Mapping[str, Tensor], description: Description) -> None:
    """Compare a network without memory with the tensors, so that a small file cannot ask for a giant network.

    Of an attached network only the network from elsewhere is compared: the block is as large as its layer. A network
    that cannot be made without memory, as those of plugins may be, is compared when it has been made.
    """
    model, classes, prefix = description.model, len(description.classes), ""
    if is_foreign(model):
        if user_module(model):
            return
        prefix = "trunk.model." if description.options.get("freeze") else "model."
    try:
        with torch.device("meta"):
            size = description.options.get("image_size")
            made = source_of(model, classes, description.input_size, size).model if prefix else build(description)
    except (NotImplementedError, RuntimeError, TembedError):  # a wrong description fails again with memory
        return
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    _check_fit(made, current_names(inner, made))


def _result_beside(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The result of the run whose best weights these are: result.json of a run folder, NAME.json of shipped weights."""
    beside = path.with_name("result.json") if path.name == BEST else path.with_suffix(".json")
    result = read_json(beside) if beside.is_file() else None
    known = isinstance(result, dict) and result.get("best_epoch") == record.get("epoch")
    return {"result": result} if known else {}


def _check_known(path: Path, model: str) -> None:
    """Raise `TembedError` unless this network can be built here."""
    try:
        canonical_name(model)
    except TembedError as error:
        hint = "if a plugin registers this network, load it with --plugin MODULE"
        raise TembedError(f"{path}: {error}; {hint}") from None
    if is_foreign(model):
        try:
            check_source(parse_foreign(model))
        except TembedError as error:
            raise TembedError(f"{path}: {error}") from None


def _check_values(tensors: Mapping[str, Tensor], description: Description) -> None:
    """Raise `TembedError` for values that would give wrong results, or none in any reasonable time."""
    if not description.classes:
        raise TembedError("it names no classes")
    if description.recipe is not None and description.recipe.get("model") != description.model:
        raise TembedError(f"it is {description.model}, and its recipe is of {description.recipe.get('model')}")
    for size in (description.input_size, description.options.get("image_size") or 1):
        if not 1 <= size <= MAX_INPUT_SIZE:
            raise TembedError(f"it is for images of {size} pixels; sizes are from 1 to {MAX_INPUT_SIZE}")
    mean, std = description.mean, description.std
    if mean is not None and not all(abs(value) <= LARGEST for value in mean):
        raise TembedError(f"its mean {mean} is not from {-LARGEST:g} to {LARGEST:g}")
    if std is not None and not all(1 / LARGEST <= value <= LARGEST for value in std):
        raise TembedError(f"its std {std} is not from {1 / LARGEST:g} to {LARGEST:g}")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise TembedError(f"{name} is not finite")


# --- where weights are


def find_weights(source: str | Path) -> Path:
    """The weights file for ``source``: an existing path, or the name of shipped weights."""
    path = Path(source)
    if path.is_dir():
        if not (path / "recipe.json").is_file():
            raise TembedError(f"{path} is not a run folder: it has no recipe.json")
        if not (path / BEST).exists():
            raise TembedError(f"{path} has no weights yet: it has not finished an epoch")
        return path / BEST
    if path.exists():
        return path
    known = shipped()
    if str(source) not in known:
        raise TembedError(
            f"{str(source)!r} is not a run folder, a weights file or the name of shipped weights; shipped: "
            f"{', '.join(known) or 'none'}"
        )
    return known[str(source)]


def shipped() -> dict[str, Path]:
    """The weights that come with the package, by name."""
    folder = Path(tembed.__file__).parent / "weights"
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("*/*.safetensors"))}


def unwrapped_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names that they have in the unwrapped model: without wrappers that all names begin with."""
    names = list(tensors)
    while names and (prefix := f"{names[0].partition('.')[0]}.")[:-1] in WRAPPERS:
        if not all(name.startswith(prefix) for name in names):
            break
        names = [name.removeprefix(prefix) for name in names]
    return dict(zip(names, tensors.values(), strict=True))


# --- networks in use


def current_description(model: nn.Module) -> Description:
    """What is known about the weights that a network has now, which may have changed since they were loaded."""
    description: Description = getattr(model, "description", Description())
    if description.weights_sha256 in (None, checksum(unwrapped_names(model.state_dict()))):
        return description
    return description.changed()


Loadable = Any
"""What `as_network` takes: what `load` takes, an open run, or a network that `load` returned."""


def name_of(source: Loadable) -> str:
    """The source as an error message names it."""
    folder = getattr(source, "folder", source)
    return str(folder) if isinstance(folder, str | Path) else "this model"


def as_network(source: Loadable, accelerator: str = "auto") -> AnyNetwork:
    """The network of any source, on a GPU if there is one and ``accelerator`` allows it.

    Raises `TembedError` if its classes or its normalisation are unknown.
    """
    given: Any = getattr(source, "folder", source)
    model = given if isinstance(given, nn.Module) else load(given)
    if not isinstance(model, AnyNetwork) or not model.description.classes or model.description.mean is None:
        raise TembedError(
            f"{name_of(source)} does not know its classes and normalisation: tell it with tembed.describe, or give a "
            "run, a weights file or a model from tembed.load"
        )
    return model.to(choose_device(accelerator))
