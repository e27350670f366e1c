"""The model card: data, recipe, number of trainings, score and limits, as Markdown with the hub's YAML header."""

import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from tembed.common.errors import TembedError
from tembed.models.description import Description
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.paper import ACCURACY, EPOCHS, LABELS

UNKNOWN = "not recorded"
USUAL = {
    "patience": None,
    "betas": [0.9, 0.999],
    "start_scale": 1.0,
    "crops": "padded",
    "flips": "random",
    "left_out": "nothing",
    "averaging": 0.0,
    "label_smoothing": 0.0,
    "balanced": False,
}
"""Settings of the training that the card names if they differ."""
PAPER = "*Feature Embedding by Template Matching as a ResNet Block* (BMVC 2022)"


Values = Mapping[str, Any]
"""A recipe or a result as plain values."""


def model_card(description: Description, name: str | None = None) -> str:
    """The card of a network. What its description does not know, the card says it does not know.

    ``name``: that of shipped weights, which have no ``config.json`` beside them.
    """
    try:
        return _card(description, name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TembedError(f"the recipe of these weights was not written by tembed ({error}): no card") from None


def _card(description: Description, name: str | None) -> str:
    recipe, result = description.recipe, description.result or {}
    title = description.model + (f" on {recipe['data']}" if recipe else "")
    sections = [
        _header(description.model, recipe, result),
        f"# {title}",
        _wrap(_introduction(description.model, len(description.classes))),
        _use(description, name),
        "## Data\n\n" + _data(description, result),
        "## Recipe\n\n" + _recipe(description, name),
        "## Score\n\n" + _wrap(_score(description, result)),
        "## Limits\n\n" + "\n".join(_wrap(f"- {limit}", "  ") for limit in _limits(description)),
    ]
    return "\n\n".join(sections) + "\n"


def _header(model: str, recipe: Values | None, result: Values) -> str:
    """YAML. A JSON text is valid YAML, so every value is written as JSON."""
    fields: dict[str, Any] = {"library_name": "tembed", "pipeline_tag": "image-classification", "tags": ["tembed"]}
    if recipe:
        fields["datasets"] = [recipe["data"]]
    if recipe and "test_accuracy" in result:
        fields["metrics"] = ["accuracy"]
        metric = {"type": "accuracy", "value": round(result["test_accuracy"], 6), "name": "test accuracy, n = 1"}
        task = {"type": "image-classification"}
        dataset = {"type": recipe["data"], "name": recipe["data"], "split": "test"}
        fields["model-index"] = [{"name": model, "results": [{"task": task, "dataset": dataset, "metrics": [metric]}]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in fields.items()), "---"])


def _introduction(model: str, classes: int) -> str:
    """What the network is. Only those of Table 1 are the paper's own."""
    if is_foreign(model):
        name = parse_foreign(model)
        block = {"embed": "with the block", "aux": "with the patch scores", "none": "without the block"}[name.block]
        where = "" if name.block == "none" else f" behind {name.at}"
        what = f"{name.factory} of {name.source}, {block} of {PAPER}{where}"
    elif model in LABELS:
        what = f"The network {model} ({LABELS[model]} in Table 1) of {PAPER}"
    else:
        what = f"The network {model}, made with tembed, which implements {PAPER}"
    return f"{what}, for {classes} classes."


def _use(description: Description, name: str | None) -> str:
    source = "FOLDER)  # the folder of this card, in" if name is None else f'"{name}")  # in'
    if description.mean is None or description.std is None:
        images = "Images have to be normalised as in the training, which is not recorded."
    else:
        mean, std = (", ".join(f"{value:.4f}" for value in each) for each in (description.mean, description.std))
        images = f"Images are RGB from 0 to 1, normalised by the mean ({mean}) and the standard deviation ({std})."
    return (
        "```python\nimport tembed\n\nmodel = tembed.load(" + source + " evaluation mode\n"
        "output = model(images)  # (N, 3, H, W); output.logits is (N, C)\n```\n\n" + _wrap(images)
    )


def _data(description: Description, result: Values) -> str:
    recipe, classes = description.recipe, description.classes
    names = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
    if recipe is None:
        return f"The training data are {UNKNOWN}. The classes: {names}."
    rows = {
        "dataset": recipe["data"],
        "split": f"{recipe['split']}, seed {recipe['split_seed']}",
        "training images": _count(result.get("train_images") or recipe["train_images"]),
        "test images": _count(result.get("test", {}).get("images")),
        "sha256 of the data": description.data_sha256 or UNKNOWN,
        "classes": names,
    }
    return _table(rows)


def _recipe(description: Description, name: str | None) -> str:
    recipe = description.recipe
    if recipe is None:
        return f"The training is {UNKNOWN}."
    rows: dict[str, Any] = {}
    if is_foreign(description.model):
        rows["start"] = recipe["init"] or "the pretrained weights of the network"
    elif recipe.get("init"):
        rows["start"] = f"the weights {recipe['init']}, whose data and licence also count"
    if is_foreign(description.model):
        rows["trained"] = "the block and a new linear head" if recipe["freeze"] else "everything"
    rate, schedule, decay = recipe["lr"], recipe["schedule"], recipe["weight_decay"]
    weight = recipe["weight"]
    rows |= {
        "epochs": recipe["epochs"],
        "batch": recipe["batch_size"],
        "optimizer": f"{recipe['optimizer']}, rate {rate:g} ({schedule}), decay {decay:g}",
        "lambda (Eq. 3.1)": "no patch loss" if weight is None else f"{weight:g}",
        "other settings": _unusual(recipe) or "none",
        "options of the network": ", ".join(f"{k} = {v}" for k, v in description.options.items()) or "none",
        "seed": description.seed,
    }
    where = "`config.json`" if name is None else "The weights file"
    return _table(rows) + f"\n\n{where} has every field of the recipe."


def _unusual(recipe: Values) -> str:
    """The settings of the training that are in no other row and differ from the paper's."""
    changed = {name: recipe[name] for name, usual in USUAL.items() if recipe.get(name, usual) != usual}
    return ", ".join(f"{name} = {value}" for name, value in changed.items())


def _score(description: Description, result: Values) -> str:
    recipe, model = description.recipe, description.model
    if "test_accuracy" not in result:
        accuracy = description.val_accuracy
        right = None if accuracy is None else f"{100 * accuracy:.2f} % of the validation images"
        return f"The test accuracy is {UNKNOWN}" + (f"; {right} are right (n = 1 training)." if right else ".")
    seed = f", seed {description.seed}" if recipe else ""
    accuracy, images = result["test_accuracy"], result.get("test", {}).get("images")
    text = f"{100 * accuracy:.2f} % of the test images are right (n = 1 training{seed})"
    if images:
        error = math.sqrt(accuracy * (1 - accuracy) / images)
        text += f". The standard error that comes from {images:,} test images alone is {100 * error:.2f} points"
    text += (
        f". These are the weights of epoch {result['best_epoch']}, the best of {result['epochs']} on the validation "
        f"images ({100 * result['val_accuracy']:.2f} %)."
    )
    published = ACCURACY.get((model, recipe["data"])) if recipe else None
    if published is not None:
        text += f" The paper reports {published:.2f} % for {LABELS[model]}."
    return text


def _limits(description: Description) -> list[str]:
    recipe, size = description.recipe, description.input_size
    limits = [
        f"It was built for images of {size}x{size} pixels. Other sizes run, but their accuracy was not measured.",
        f"It knows {len(description.classes)} classes. Any other image gets one of them, often with high confidence.",
    ]
    if recipe is not None:
        limits.insert(0, "One training with one seed: a difference of a point from another network is not evidence.")
        epochs, images = recipe["epochs"], recipe["train_images"]
        if (epochs < EPOCHS and not recipe["freeze"]) or images is not None:
            trained = f"{epochs} epochs on {'all' if images is None else f'{images:,}'} training images"
            limits.insert(1, f"A short training: {trained}; the paper preset has {EPOCHS} epochs on all of them.")
    limits.append("Confidence was not calibrated, and nothing was tested on images from another source.")
    return limits


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows.items())])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
