"""Small inputs for an analysis: random features, and untrained networks saved like trained ones."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from tembed.lab.analysis.features import Features
from tembed.lab.training.recipe import Recipe
from tembed.models.description import Description
from tembed.models.registry import create_model
from tembed.trained.weights_file import save_weights


def made_features(
    labels: np.ndarray, map_size: tuple[int, int] = (2, 2), classes: int = 4, width: int = 6, seed: int = 0
) -> Features:
    """Random features that are consistent with each other."""
    rng = np.random.default_rng(seed)
    points = len(labels) * map_size[0] * map_size[1]
    scores = rng.normal(size=(points, classes)) * 2
    p = np.exp(scores)
    values = rng.normal(size=(classes, width)).astype(np.float32)
    mixing = np.maximum(scores, 0).astype(np.float32)
    block_input = rng.normal(size=(points, width)).astype(np.float32)
    embedding = mixing @ values
    return Features(
        key="made",
        map_size=map_size,
        window=(max(1, map_size[0] // 2), max(1, map_size[1] // 2)),
        labels=labels,
        logits=rng.normal(size=(len(labels), classes)).astype(np.float32),
        block_input=block_input,
        block_output=block_input + embedding,
        softmax=(p / p.sum(1, keepdims=True)).astype(np.float32),
        mixing=mixing,
        embedding=embedding,
        values=values,
    )


def save_untrained(path: Path, model: str, data: str, classes: tuple[str, ...], size: int, seed: int = 0) -> Path:
    """A weights file of an untrained network."""
    torch.manual_seed(seed)
    recipe = Recipe.fast(model, data, epochs=1).complete()
    network = create_model(recipe.model, len(classes), size, **recipe.model_options())
    save_weights(path, network.state_dict(), made_description(recipe, classes, size))
    return path


def made_description(recipe: Recipe, classes: tuple[str, ...], size: int) -> Description:
    """The description of a network of this recipe, with a made-up normalisation."""
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    return Description(recipe.model, recipe.model_options(), size, classes, mean, std, recipe=recipe.to_json())


def planted_network(
    labels: np.ndarray, group_of: np.ndarray, strength: float, seed: int = 0, side: int = 4
) -> Features:
    """A block whose class vectors are equal within a super-class: its output separates the super-classes.

    The input is noise. The mixing weights are on random classes of the patch's own super-class, ``strength`` is the
    length of the class vectors. With ``strength`` 0 the block's output is as much noise as its input.
    """
    rng = np.random.default_rng(seed)
    classes, width = len(group_of), 12
    features = made_features(labels, (4, 4), classes, width, seed)
    truth = labels[features.image_of]
    noise = rng.normal(size=features.block_input.shape).astype(np.float32)
    weights = rng.random((len(truth), classes)) * (group_of[truth][:, None] == group_of[None])
    mixing = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    values = (strength * np.eye(2, width)[group_of % 2] + 1e-3 * rng.normal(size=(classes, width))).astype(np.float32)
    embedding = mixing @ values
    shortcut = rng.normal(size=noise.shape).astype(np.float32)
    return dataclasses.replace(
        features, block_input=noise, block_output=shortcut + embedding,
        mixing=mixing, values=values, embedding=embedding, softmax=mixing,
    )  # fmt: skip
