"""Writes a network as a folder in the layout of the Hugging Face hub; `tembed.load` reads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from tembed import __version__
from tembed.common.errors import TembedError
from tembed.common.files import explained, write_file, write_json
from tembed.models.foreign import is_foreign
from tembed.models.origin import Origin
from tembed.trained.card import model_card
from tembed.trained.changes import current_origin, normalisation
from tembed.trained.checksummed import checksum
from tembed.trained.hub_folder import CARD, CONFIG, MODEL_TYPE, WEIGHTS
from tembed.trained.weights_file import plain_names


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
    origin = current_origin(model)
    if origin is None:
        raise TembedError(
            f"{type(model).__name__} is not a network of tembed.create_model or tembed.load, so config.json cannot say "
            "how to build it again: save its state dict, or export it with tembed.trained.to_onnx"
        )
    if origin.recipe is None and is_foreign(origin.model):
        raise TembedError(
            "these weights have changed since they were loaded, and without its recipe an attached network cannot be "
            "built again: save its state dict, or export it with tembed.trained.to_onnx"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in plain_names(model.state_dict()).items()}
    num_classes: Any = model.num_classes
    config = _config(origin, num_classes, classes, mean, std)
    config["weights_sha256"] = checksum(tensors)
    folder = Path(folder)
    _check_folder(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS, save(tensors, {"format": "pt"}))
    write_file(folder / CARD, model_card(config).encode())
    write_json(folder / CONFIG, config)
    return folder


def _config(
    origin: Origin,
    num_classes: int,
    classes: Sequence[str] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> dict[str, Any]:
    """The content of ``config.json`` without the checksum of the weights."""
    named = origin.classes if classes is None else classes
    names = [f"class {label}" for label in range(num_classes)] if named is None else list(named)
    if len(names) != num_classes:
        raise TembedError(f"`classes` has {len(names)} names, and the network has {num_classes} classes")
    mean, std = normalisation(origin, mean, std)
    return {
        "model_type": MODEL_TYPE,
        "tembed_version": __version__,
        "architectures": [origin.model],
        "model": origin.model,
        "options": origin.options,
        "id2label": {str(label): name for label, name in enumerate(names)},
        "label2id": {name: label for label, name in enumerate(names)},
        "image_size": origin.input_size,
        "image_mean": mean,
        "image_std": std,
        "recipe": origin.recipe,
        "about": origin.about,
    }


def _check_folder(folder: Path) -> None:
    """Refuse a folder whose content is not ours."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise TembedError(f"{folder} is a file: give a new folder")
    others = sorted({path.name for path in folder.iterdir()} - {CONFIG, WEIGHTS, CARD})
    ours = not (folder / CONFIG).exists() or _is_ours(folder / CONFIG)
    if others or not ours:
        raise TembedError(f"{folder} holds other files ({', '.join(others[:3]) or CONFIG}): give a new or empty folder")


def _is_ours(path: Path) -> bool:
    try:
        return json.loads(path.read_text("utf-8")).get("model_type") == MODEL_TYPE
    except (OSError, ValueError, AttributeError):
        return False
