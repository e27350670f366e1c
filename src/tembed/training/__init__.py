"""Recipes, runs and weights (paper §4). Names are imported when first used: a recipe alone needs no torch."""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.training.distributed.hardware import Hardware as Hardware
    from tembed.training.evaluation import Evaluation as Evaluation
    from tembed.training.evaluation import evaluate as evaluate
    from tembed.training.loop import train as train
    from tembed.training.recipe import Recipe as Recipe
    from tembed.training.run import Run as Run
    from tembed.training.stopping import Stopped as Stopped
    from tembed.training.weights import Trained as Trained
    from tembed.training.weights import export_weights as export_weights
    from tembed.training.weights import load as load
    from tembed.training.weights import load_trained as load_trained

_HOME = {
    "Evaluation": "evaluation",
    "Hardware": "distributed.hardware",
    "Recipe": "recipe",
    "Run": "run",
    "Stopped": "stopping",
    "Trained": "weights",
    "evaluate": "evaluation",
    "export_weights": "weights",
    "load": "weights",
    "load_trained": "weights",
    "train": "loop",
}

__getattr__, __dir__, __all__ = lazy("tembed.training", _HOME)
