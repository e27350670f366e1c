"""The model card: data, recipe, number of trainings, score and limits, as Markdown with the hub's YAML header."""

import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.paper import ACCURACY, LABELS

UNKNOWN = "not recorded"
PAPER = "*Feature Embedding by Template Matching as a ResNet Block* (BMVC 2022)"


def model_card(config: Mapping[str, Any], name: str | None = None) -> str:
    """The card for the ``config.json`` of a network. What the config does not know, the card says it does not know.

    ``name``: that of shipped weights, which have no ``config.json`` beside them.
    """
    recipe = None if config["recipe"] is None else Recipe.from_plain(config["recipe"])
    classes = [config["id2label"][str(label)] for label in range(len(config["id2label"]))]
    about = config.get("about", {})
    result = about.get("result") or {}
    title = config["model"] + (f" on {recipe.data}" if recipe else "")
    sections = [
        _header(config["model"], recipe, result),
        f"# {title}",
        _wrap(_introduction(config["model"], len(classes))),
        _use(config, name),
        "## Data\n\n" + _data(recipe, classes, about, result),
        "## Recipe\n\n" + _recipe(recipe, name),
        "## Score\n\n" + _wrap(_score(config["model"], recipe, about, result)),
        "## Limits\n\n" + "\n".join(_wrap(f"- {limit}", "  ") for limit in _limits(config, recipe)),
    ]
    return "\n\n".join(sections) + "\n"


def _header(model: str, recipe: Recipe | None, result: Mapping[str, Any]) -> str:
    """YAML. A JSON text is valid YAML, so every value is written as JSON."""
    fields: dict[str, Any] = {"library_name": "tembed", "pipeline_tag": "image-classification", "tags": ["tembed"]}
    if recipe:
        fields["datasets"] = [recipe.data]
    if recipe and "test_accuracy" in result:
        fields["metrics"] = ["accuracy"]
        metric = {"type": "accuracy", "value": round(result["test_accuracy"], 6), "name": "test accuracy, n = 1"}
        task = {"type": "image-classification"}
        dataset = {"type": recipe.data, "name": recipe.data, "split": "test"}
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


def _use(config: Mapping[str, Any], name: str | None) -> str:
    source = "FOLDER)  # the folder of this card, in" if name is None else f'"{name}")  # in'
    if config["image_mean"] is None:
        images = "Images have to be normalised as in the training, which is not recorded."
    else:
        mean, std = (", ".join(f"{value:.4f}" for value in config[key]) for key in ("image_mean", "image_std"))
        images = f"Images are RGB from 0 to 1, normalised by the mean ({mean}) and the standard deviation ({std})."
    return (
        "```python\nimport tembed\n\nmodel = tembed.load(" + source + " evaluation mode\n"
        "output = model(images)  # (N, 3, H, W); output.logits is (N, C)\n```\n\n" + _wrap(images)
    )


def _data(recipe: Recipe | None, classes: list[str], about: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    names = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
    if recipe is None:
        return f"The training data are {UNKNOWN}. The classes: {names}."
    rows = {
        "dataset": recipe.data,
        "split": f"{recipe.split}, seed {recipe.split_seed}",
        "training images": _count(result.get("train_images") or recipe.train_images),
        "test images": _count(result.get("test", {}).get("images")),
        "sha256 of the data": about.get("data_sha256", UNKNOWN),
        "classes": names,
    }
    return _table(rows)


def _recipe(recipe: Recipe | None, name: str | None) -> str:
    if recipe is None:
        return f"The training is {UNKNOWN}."
    rows: dict[str, Any] = {"preset": recipe.preset}
    if is_foreign(recipe.model):
        rows["start"] = recipe.init or "the pretrained weights of the network"
        rows["trained"] = "the block and a new linear head" if recipe.freeze else "everything"
    rows |= {
        "epochs": recipe.epochs,
        "batch": recipe.batch_size,
        "optimizer": f"{recipe.optimizer}, rate {recipe.lr:g} ({recipe.schedule}), decay {recipe.weight_decay:g}",
        "lambda (Eq. 3.1)": "no patch loss" if recipe.weight is None else f"{recipe.weight:g}",
        "other settings": _unusual(recipe) or "those of the preset",
        "options of the network": ", ".join(f"{k} = {v}" for k, v in recipe.model_options().items()) or "none",
        "seed": recipe.seed,
    }
    where = "`config.json`" if name is None else "The weights file"
    return _table(rows) + f"\n\n{where} has every field of the recipe."


def _unusual(recipe: Recipe) -> str:
    """The settings of the training that are in no other row and differ from those of the preset."""
    preset = recipe.preset if recipe.preset in PRESETS else "paper"
    usual = Recipe.from_preset(preset, recipe.model, recipe.data)
    names = ("patience", "betas", "start_scale", "flips", "averaging", "label_smoothing", "balanced")
    changed = [name for name in names if getattr(recipe, name) != getattr(usual, name)]
    return ", ".join(f"{name} = {getattr(recipe, name)}" for name in changed)


def _score(model: str, recipe: Recipe | None, about: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if "test_accuracy" not in result:
        found = f"{100 * about['val_accuracy']:.2f} % of the validation images" if "val_accuracy" in about else None
        return f"The test accuracy is {UNKNOWN}" + (f"; {found} are right (n = 1 training)." if found else ".")
    seed = f", seed {recipe.seed}" if recipe else ""
    accuracy, images = result["test_accuracy"], result.get("test", {}).get("images")
    text = f"{100 * accuracy:.2f} % of the test images are right (n = 1 training{seed})"
    if images:
        error = math.sqrt(accuracy * (1 - accuracy) / images)
        text += f". The standard error that comes from {images:,} test images alone is {100 * error:.2f} points"
    text += (
        f". These are the weights of epoch {result['best_epoch']}, the best of {result['epochs']} on the validation "
        f"images ({100 * result['val_accuracy']:.2f} %)."
    )
    published = ACCURACY.get((model, recipe.data)) if recipe else None
    if published is not None:
        text += f" The paper reports {published:.2f} % for {LABELS[model]}."
    return text


def _limits(config: Mapping[str, Any], recipe: Recipe | None) -> list[str]:
    size = config["image_size"]
    limits = [
        f"It was built for images of {size}x{size} pixels. Other sizes run, but their accuracy was not measured.",
        f"It knows {len(config['id2label'])} classes. Any other image gets one of them, often with high confidence.",
    ]
    if recipe is not None:
        limits.insert(0, "One training with one seed: a difference of a point from another network is not evidence.")
        usual = Recipe(recipe.model, recipe.data).epochs
        if (recipe.epochs < usual and not recipe.freeze) or recipe.train_images is not None:
            images = "all" if recipe.train_images is None else f"{recipe.train_images:,}"
            trained = f"{recipe.epochs} epochs on {images} training images"
            limits.insert(1, f"A short training: {trained}; the paper preset has {usual} epochs on all of them.")
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
