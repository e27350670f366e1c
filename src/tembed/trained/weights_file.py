"""Weights on disk: safetensors files that also hold the recipe, the classes and the normalisation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

import tembed
from tembed.attachment.attached import Attached
from tembed.attachment.frozen import Frozen
from tembed.common.errors import TembedError, first_line
from tembed.common.files import read_json, write_file
from tembed.images.image_files import Fit
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.models.network import Network
from tembed.models.origin import Origin
from tembed.models.registry import canonical_name, create_model
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.hub_folder import is_pretrained, read_pretrained

KIND = "weights"
MAX_INPUT_SIZE = 2048
"""Largest side of the images that a weights file may ask for; it decides how much memory and time its use takes."""
AnyNetwork = Network | Attached | Frozen
"""A network of the paper, or one from elsewhere with the block."""
WRAPPERS = ("_orig_mod", "module", "_forward_module")
"""Prefixes that torch.compile, data parallelism and launchers add to the names of what they wrap."""


@dataclass(frozen=True)
class Trained:
    """A model and what is needed to use it: ``mean`` and ``std`` normalise its images, with pixels from 0 to 1.

    ``input_size`` is the images' shorter side. ``about`` holds the other fields of the file: the epoch, its accuracy.
    """

    model: AnyNetwork
    recipe: Recipe
    classes: tuple[str, ...]
    input_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    about: dict[str, Any]

    @property
    def fit(self) -> Fit:
        """How an oblong picture becomes a square for this network: as in the import of its dataset."""
        fit: Any = self.about.get("fit")
        return fit if fit in get_args(Fit) else "crop"

    def __repr__(self) -> str:
        trained = f"{self.recipe.model} on {self.recipe.data}"
        return f"Trained({trained}, {len(self.classes)} classes, {self.input_size}x{self.input_size})"


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


def load(source: str | Path) -> AnyNetwork:
    """The trained model of a run folder, a weights file, or shipped weights such as ``"rn26-embed/cifar10"``.

    A folder of `tembed.save_pretrained` works too. The model is in evaluation mode. `load_trained` also gives its
    recipe, classes and normalisation.
    """
    path, tensors, record = _read(source)
    if record.get("recipe") is None and "model" in record:
        return _load_untrained(path, tensors, record)
    return _load_trained(path, tensors, record).model


def load_trained(source: str | Path) -> Trained:
    """Like `load`, but with everything else that the file holds."""
    path, tensors, record = _read(source)
    if record.get("recipe") is None and "model" in record:
        raise TembedError(f"{path} has no recipe, so the training of its weights is unknown: only tembed.load opens it")
    return _load_trained(path, tensors, record)


def _read(source: str | Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """Where the weights are, their tensors, and their record."""
    if is_pretrained(Path(source)):
        return Path(source), *read_pretrained(Path(source))
    path = find_weights(source)
    tensors, record = read_checksummed(path, KIND)
    return path, tensors, record | _result_of(path, record)


def _result_of(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The result of the run whose best weights these are: result.json of a run folder, NAME.json of shipped weights."""
    beside = path.with_name("result.json") if path.name == "best.safetensors" else path.with_suffix(".json")
    result = read_json(beside) if beside.is_file() else None
    known = isinstance(result, dict) and result.get("best_epoch") == record.get("epoch")
    return {"result": result} if known else {}


def _load_trained(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> Trained:
    recipe = _registered_recipe(path, record)
    try:
        classes, size = _classes_and_size(record)
        mean, std = (_triple(record[key]) for key in ("mean", "std"))
        _check_values(tensors, size, mean, std)
        model = build(recipe, len(classes), size)
        fill(model, tensors)
    except Exception as error:  # a checksum is not a signature, so the file may hold anything
        raise TembedError(f"{path} does not hold the weights that it describes ({first_line(error)})") from None
    about = _others(record)
    known = (recipe.model_options(), classes, mean, std, recipe.plain(), about)
    model.origin = Origin(recipe.model, size, *known, checksum(model.state_dict()))
    return Trained(model.eval(), recipe, classes, size, mean, std, about)


Source = str | Path | Run | Trained | AnyNetwork
"""What `as_trained` takes: what `load` takes, an open run, a `Trained`, or a model that `load` returned."""


def named(source: Source) -> str:
    """The source as an error message names it."""
    if isinstance(source, Run):
        return str(source.folder)
    return str(source) if isinstance(source, str | Path) else "this model"


def as_trained(source: Source, accelerator: str = "auto") -> Trained:
    """The trained model of any source, on a GPU if there is one and ``accelerator`` allows it."""
    if isinstance(source, AnyNetwork):
        trained = _of_model(source)
    elif isinstance(source, Trained):
        trained = source
    else:
        trained = load_trained(source.folder if isinstance(source, Run) else source)
    device = Hardware(accelerator=accelerator).complete().accelerator  # type: ignore[arg-type]  # complete checks it
    trained.model.to(device)
    return trained


def _of_model(model: AnyNetwork) -> Trained:
    """The model with what `load` noted about it."""
    known = model.origin
    if known is None or known.recipe is None or known.classes is None or known.mean is None or known.std is None:
        raise TembedError(
            "this model does not know its classes and normalisation: give a run, a model from tembed.load, or a "
            "tembed.trained.Trained"
        )
    recipe = Recipe.from_plain(known.recipe)
    return Trained(model, recipe, known.classes, known.input_size, known.mean, known.std, known.about)


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


def _load_untrained(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> Network:
    """The model of a folder that does not know its training."""
    name = str(record["model"])
    _check_registered(path, name)
    try:
        classes, size = _classes_and_size(record)
        mean, std = (None if record[key] is None else _triple(record[key]) for key in ("mean", "std"))
        _check_values(tensors, size, mean or (0.0, 0.0, 0.0), std or (1.0, 1.0, 1.0))
        model = create_model(name, len(classes), size, **record["options"])
        fill(model, tensors)
    except Exception as error:  # as above
        raise TembedError(f"{path} does not hold the weights that it describes ({first_line(error)})") from None
    known = (record["options"], classes, mean, std, None, _others(record))
    model.origin = Origin(name, size, *known, checksum(model.state_dict()))
    return model.eval()


def _others(record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record that describe neither the network nor its input."""
    named = ("kind", "recipe", "classes", "input_size", "mean", "std", "model", "options")
    return {key: value for key, value in record.items() if key not in named}


def _classes_and_size(record: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    return tuple(str(name) for name in record["classes"]), int(record["input_size"])


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a state dict, with a one-line error that names what does not fit."""
    ours = model.state_dict()
    missing, extra = [name for name in ours if name not in tensors], [name for name in tensors if name not in ours]
    for names, what in ((missing, "are missing"), (extra, "are not in the network")):
        if names:
            raise TembedError(f"{len(names)} weights {what}, such as {names[0]}")
    for name, tensor in ours.items():
        if tensor.shape != tensors[name].shape:
            raise TembedError(f"{name} has the shape {tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}")
    model.load_state_dict(dict(tensors))


def _registered_recipe(path: Path, record: dict[str, Any]) -> Recipe:
    """The recipe of a weights file, if its network is known here."""
    try:
        recipe = Recipe.from_plain(record.get("recipe"))
    except TembedError as error:
        raise TembedError(f"{path} does not hold the weights that it describes ({error})") from None
    _check_registered(path, recipe.model)
    return recipe


def _check_registered(path: Path, model: str) -> None:
    try:
        canonical_name(model)
    except TembedError as error:
        hint = "if a plugin registers this network, load it with --plugin MODULE"
        raise TembedError(f"{path}: {error}; {hint}") from None
    if is_foreign(model):
        from tembed.attachment.sources import check_source

        try:
            check_source(parse_foreign(model))
        except TembedError as error:
            raise TembedError(f"{path}: {error}") from None


def build(recipe: Recipe, classes: int, input_size: int) -> AnyNetwork:
    """The network of a complete recipe, freshly initialised. An attached one has no particular weights."""
    if is_foreign(recipe.model):
        from tembed.lab.training.attached_network import build_empty

        return build_empty(recipe, classes, input_size)
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
    """The tensors under the names that they have in the unwrapped model: without wrappers that all names begin with."""
    names = list(tensors)
    while names and (prefix := f"{names[0].partition('.')[0]}.")[:-1] in WRAPPERS:
        if not all(name.startswith(prefix) for name in names):
            break
        names = [name.removeprefix(prefix) for name in names]
    return dict(zip(names, tensors.values(), strict=True))


def _triple(values: Any) -> tuple[float, float, float]:
    red, green, blue = map(float, values)
    return red, green, blue
