"""A network as a folder in the layout of the Hugging Face hub, which `tembed.load` reads.

::

    config.json        the description of the network, and the names of its classes as the hub's tools expect them
    model.safetensors  the weights under the names of the state dict
    README.md          the model card
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor, nn

from tembed import __version__
from tembed.common.errors import TembedError
from tembed.common.files import (
    check_regular,
    is_part,
    make_folder,
    parse_json,
    read_file,
    read_json,
    write_file,
    write_json,
)
from tembed.models.description import Description
from tembed.trained.card import model_card
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import current_description, unwrapped_names

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
MODEL_TYPE = "tembed"


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Path:
    """Write ``config.json``, ``model.safetensors`` and ``README.md``, the model card. Returns the folder.

    Classes, normalisation, recipe and score are those of the weights that `tembed.load` loaded. If the weights have
    changed since, the card does not repeat their recipe and score.

    Args:
        model: a network of `tembed.create_model` or `tembed.load`.
        folder: a new or empty folder, or one that this function wrote before.
        classes: the names of the classes; by default those that the weights were trained on.
        mean: the normalisation of the images with values from 0 to 1; by default that of the training.
        std: see ``mean``.
    """
    known = current_description(model)
    if not known.model:
        raise TembedError(
            f"{type(model).__name__} is not a network of tembed.create_model or tembed.load, so config.json cannot say "
            "how to build it again: tell it with tembed.describe(model, built_by=…), or export it with "
            "tembed.trained.to_onnx"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in unwrapped_names(model.state_dict()).items()}
    description = completed(known, model, classes, mean, std)
    names = description.classes or tuple(f"class {label}" for label in range(_count(model)))
    description = dataclasses.replace(description, classes=names, weights_sha256=checksum(tensors))
    folder, card = Path(folder), model_card(description)
    _check_folder(folder)
    make_folder(folder)
    write_file(folder / WEIGHTS, save(tensors, {"format": "pt"}))
    write_file(folder / CARD, card.encode())
    write_json(folder / CONFIG, _config(description))
    return folder


def completed(
    known: Description,
    model: nn.Module,
    classes: Sequence[str] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Description:
    """The description with the classes and the normalisation that were given, where they were."""
    if (mean is None) != (std is None):
        raise TembedError("give both `mean` and `std`, or neither")
    names = known.classes if classes is None else tuple(classes)
    if names and _count(model) not in (0, len(names)):
        raise TembedError(f"`classes` has {len(names)} names, and the network has {_count(model)} classes")
    given = {name: tuple(map(float, values)) for name, values in (("mean", mean), ("std", std)) if values is not None}
    return dataclasses.replace(known, classes=names, **given)  # type: ignore[arg-type]


def _count(model: nn.Module) -> int:
    """The number of classes; 0 if it is unknown."""
    count: Any = getattr(model, "num_classes", 0)
    return int(count)


def _config(description: Description) -> dict[str, Any]:
    """The content of ``config.json``: the description under its own key, beside what the hub's tools look for."""
    return {
        "model_type": MODEL_TYPE,
        "architectures": [description.model],
        "id2label": {str(label): name for label, name in enumerate(description.classes)},
        "label2id": {name: label for label, name in enumerate(description.classes)},
        "tembed_version": __version__,
        "description": description.to_json(),
    }


def _check_folder(folder: Path) -> None:
    """Refuse a folder whose content is not ours."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise TembedError(f"{folder} is a file: give a new folder")
    own = (CONFIG, WEIGHTS, CARD)
    others = sorted(path.name for path in folder.iterdir() if path.name not in own and not is_part(path.name, own))
    ours = not (folder / CONFIG).exists() or _is_ours(folder / CONFIG)
    if others or not ours:
        raise TembedError(f"{folder} holds other files ({', '.join(others[:3]) or CONFIG}): give a new or empty folder")


def _is_ours(path: Path) -> bool:
    try:
        return read_json(path).get("model_type") == MODEL_TYPE
    except (TembedError, AttributeError):
        return False


def is_pretrained(folder: Path) -> bool:
    """Whether this is such a folder. A run folder has a recipe.json."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.json").exists()


def read_pretrained(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights, and the description as plain values."""
    description = read_config(folder)["description"]
    path = folder / WEIGHTS
    try:
        check_regular(path)
        tensors = load_tensors(path.read_bytes())
    except Exception as error:  # the reader raises many types on damaged files
        raise TembedError(f"{path} is missing or damaged ({error}): copy it again") from None
    if checksum(tensors) != description.get("weights_sha256", ""):
        raise TembedError(f"{path} does not hold the weights that {CONFIG} beside it describes: copy both files again")
    return tensors, description


def read_config(folder: Path) -> dict[str, Any]:
    """The content of ``config.json``. Raises `TembedError` if it is damaged, or not of a network of this package."""
    path = folder / CONFIG
    try:
        config = parse_json(read_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): copy it again") from None
    if not isinstance(config, dict) or config.get("model_type") != MODEL_TYPE:
        raise TembedError(f"{path} does not describe a network of tembed: its model_type is not {MODEL_TYPE!r}")
    if not isinstance(config.get("description"), dict):
        raise TembedError(f"{path} lacks what tembed.save_pretrained writes (its description)")
    return config
