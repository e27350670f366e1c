"""Weights on disk: safetensors files that also hold the recipe, the classes and the normalisation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tembed
from tembed.errors import TembedError, first_line
from tembed.files import write_file
from tembed.models import Network, canonical_name, create_model
from tembed.training.checksummed import checksummed_bytes, read_checksummed
from tembed.training.recipe import Recipe
from tembed.training.run import Run

KIND = "weights"
MAX_INPUT_SIZE = 2048
"""Largest side of the images that a weights file may ask for; it decides how much memory and time its use takes."""
WRAPPERS = ("_orig_mod", "module", "_forward_module")
"""Prefixes that torch.compile, data parallelism and launchers add to the names of what they wrap."""


@dataclass(frozen=True)
class Trained:
    """A model and what is needed to use it: ``mean`` and ``std`` normalise its images, with pixels from 0 to 1.

    ``input_size`` is the images' shorter side. ``about`` holds the other fields of the file: the epoch, its accuracy.
    """

    model: Network
    recipe: Recipe
    classes: tuple[str, ...]
    input_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    about: dict[str, Any]


def save_weights(
    path: str | Path, tensors: Mapping[str, Tensor], record: dict[str, Any], *, half: bool = False
) -> None:
    """Write a weights file. ``record`` has the fields of `Trained` as plain values.

    ``half`` stores matrices and kernels in half precision. Vectors (biases and statistics) stay in full precision:
    they are small, and a variance may be out of range.
    """
    plain = plain_names(tensors)
    if half:
        plain = {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in plain.items()}
    write_file(Path(path), checksummed_bytes(plain, {**record, "kind": KIND}))


def export_weights(source: str | Path, path: str | Path, *, half: bool = False) -> None:
    """Copy the weights of a run or a file to another file, in half precision if asked for."""
    tensors, record = read_checksummed(find_weights(source), KIND)
    save_weights(path, tensors, record, half=half)


def load(source: str | Path) -> Network:
    """The trained model of a run folder, a weights file, or shipped weights such as ``"rn26-embed/cifar10"``.

    It is in evaluation mode. `load_trained` also gives its recipe, classes and normalisation.
    """
    return load_trained(source).model


def load_trained(source: str | Path) -> Trained:
    """Like `load`, but with everything else that the file holds."""
    path = find_weights(source)
    tensors, record = read_checksummed(path, KIND)
    recipe = _registered_recipe(path, record)
    try:
        classes = tuple(str(name) for name in record["classes"])
        size = int(record["input_size"])
        mean, std = (_triple(record[key]) for key in ("mean", "std"))
        _check_values(tensors, size, mean, std)
        model = build(recipe, len(classes), size)
        model.load_state_dict(tensors)
    except Exception as error:  # a checksum is not a signature, so the file may hold anything
        raise TembedError(f"{path} does not hold the weights that it describes ({first_line(error)})") from None
    named = ("kind", "recipe", "classes", "input_size", "mean", "std")
    about = {key: value for key, value in record.items() if key not in named}
    return Trained(model.eval(), recipe, classes, size, mean, std, about)


def _check_values(tensors: Mapping[str, Tensor], size: int, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `TembedError` for values that would give wrong results, or none in any reasonable time."""
    if size > MAX_INPUT_SIZE:
        raise TembedError(f"it is for images of {size} pixels, and the largest size is {MAX_INPUT_SIZE}")
    if not all(map(math.isfinite, mean)):
        raise TembedError(f"its mean {mean} is not finite")
    if not all(0 < value < math.inf for value in std):
        raise TembedError(f"its std {std} is not positive and finite")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise TembedError(f"{name} is not finite")


def _registered_recipe(path: Path, record: dict[str, Any]) -> Recipe:
    """The recipe of a weights file, if its network is known here."""
    try:
        recipe = Recipe.from_plain(record.get("recipe"))
    except TembedError as error:
        raise TembedError(f"{path} does not hold the weights that it describes ({error})") from None
    try:
        canonical_name(recipe.model)
    except TembedError as error:
        hint = "if a plugin registers this network, load it with --plugin MODULE"
        raise TembedError(f"{path}: {error}; {hint}") from None
    return recipe


def build(recipe: Recipe, classes: int, input_size: int) -> Network:
    """The network of a complete recipe, freshly initialised."""
    model = create_model(recipe.model, classes, input_size, **recipe.model_options())
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # like the batches


def find_weights(source: str | Path) -> Path:
    """The weights file for ``source``: an existing path, or the name of shipped weights."""
    path = Path(source)
    if path.is_dir():
        best = Run.open(path).best_path
        if not best.exists():
            raise TembedError(f"{path} has no weights yet: it has not finished an epoch")
        return best
    if path.exists():
        return path
    found = shipped().get(str(source))
    if found is None:
        names = ", ".join(shipped()) or "none"
        raise TembedError(
            f"{str(source)!r} is not a run folder, a weights file or the name of shipped weights; shipped: {names}"
        )
    return found


def shipped() -> dict[str, Path]:
    """The weights that come with the package, by name."""
    folder = Path(tembed.__file__).parent / "weights"
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("*/*.safetensors"))}


def plain_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names that they have in the unwrapped model."""
    return {
        ".".join(part for part in name.split(".") if part not in WRAPPERS): tensor for name, tensor in tensors.items()
    }


def _triple(values: Any) -> tuple[float, float, float]:
    red, green, blue = map(float, values)
    return red, green, blue
