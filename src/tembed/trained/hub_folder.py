"""Reads a folder in the layout of the Hugging Face hub, as `tembed.save_pretrained` writes it.

::

    config.json        network, options, classes, normalisation, recipe, what is known about the weights
    model.safetensors  the weights under the names of the state dict
    README.md          the model card
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.trained.checksummed import checksum

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
MODEL_TYPE = "tembed"


def is_pretrained(folder: Path) -> bool:
    """Whether this is such a folder. A run folder has a recipe.json."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.json").exists()


def read_pretrained(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights, and a record with the fields of a weights file.

    The record also has ``model`` and ``options``. Its ``recipe`` is None if the training is unknown, and so are
    ``mean`` and ``std`` if the normalisation is.
    """
    config = read_config(folder)
    path = folder / WEIGHTS
    try:
        tensors = load(path.read_bytes())
    except Exception as error:  # the reader raises many types on damaged files
        raise TembedError(f"{path} is missing or damaged ({error}): copy it again") from None
    if "weights_sha256" in config and checksum(tensors) != config["weights_sha256"]:
        raise TembedError(f"{path} does not hold the weights that {CONFIG} beside it describes: copy both files again")
    try:
        names = config["id2label"]
        record = {
            **config.get("about", {}),
            "classes": [names[str(label)] for label in range(len(names))],
            "input_size": config["image_size"],
            "mean": config["image_mean"],
            "std": config["image_std"],
            "model": config["model"],
            "options": config["options"],
            "recipe": config["recipe"],
        }
    except (KeyError, TypeError) as error:
        raise TembedError(f"{folder / CONFIG} lacks what tembed.save_pretrained writes ({error!r})") from None
    return tensors, record


def read_config(folder: Path) -> dict[str, Any]:
    """The content of ``config.json``. Raises `TembedError` if it is damaged, or not of a network of this package."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): copy it again") from None
    if not isinstance(config, dict) or config.get("model_type") != MODEL_TYPE:
        raise TembedError(f"{path} does not describe a network of tembed: its model_type is not {MODEL_TYPE!r}")
    return config
