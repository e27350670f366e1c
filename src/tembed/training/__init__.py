"""Recipes, runs and weights (paper §4). Names are imported when first used: a recipe alone needs no torch."""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.machine import WaitingPolicy as WaitingPolicy
    from tembed.training.distributed.hardware import Hardware as Hardware
    from tembed.training.evaluation import Evaluation as Evaluation
    from tembed.training.evaluation import evaluate as evaluate
    from tembed.training.evaluation import evaluate_in_detail as evaluate_in_detail
    from tembed.training.loop import train as train
    from tembed.training.optimizers import optimizer_names as optimizer_names
    from tembed.training.optimizers import register_optimizer as register_optimizer
    from tembed.training.prediction import Prediction as Prediction
    from tembed.training.prediction import predict as predict
    from tembed.training.recipe import PRESETS as PRESETS
    from tembed.training.recipe import Recipe as Recipe
    from tembed.training.run import Run as Run
    from tembed.training.run import run_name as run_name
    from tembed.training.stopping import Stopped as Stopped
    from tembed.training.weights import Trained as Trained
    from tembed.training.weights import export_weights as export_weights
    from tembed.training.weights import load as load
    from tembed.training.weights import load_trained as load_trained

_HOME = {
    "PRESETS": "recipe",
    "Evaluation": "evaluation",
    "Hardware": "distributed.hardware",
    "Prediction": "prediction",
    "Recipe": "recipe",
    "Run": "run",
    "Stopped": "stopping",
    "Trained": "weights",
    "WaitingPolicy": "loop",
    "evaluate": "evaluation",
    "evaluate_in_detail": "evaluation",
    "export_weights": "weights",
    "load": "weights",
    "load_trained": "weights",
    "optimizer_names": "optimizers",
    "predict": "prediction",
    "register_optimizer": "optimizers",
    "run_name": "run",
    "train": "loop",
}

__getattr__, __dir__, __all__ = lazy("tembed.training", _HOME)
