"""Feature embedding by template matching as a ResNet block (BMVC 2022).

Names are imported when first used, so that ``tembed --help`` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tembed import analysis as analysis
    from tembed import data as data
    from tembed import maximizers as maximizers
    from tembed import training as training
    from tembed.embedding import FeatureEmbedding as FeatureEmbedding
    from tembed.losses import EmbeddingLoss as EmbeddingLoss
    from tembed.models import Output as Output
    from tembed.models import Trace as Trace
    from tembed.models import create_model as create_model
    from tembed.models import list_models as list_models
    from tembed.training import Hardware as Hardware
    from tembed.training import Recipe as Recipe
    from tembed.training import Run as Run
    from tembed.training import evaluate as evaluate
    from tembed.training import load as load
    from tembed.training import train as train

_HOME = {
    "FeatureEmbedding": "tembed.embedding",
    "EmbeddingLoss": "tembed.losses",
    "Output": "tembed.models",
    "Trace": "tembed.models",
    "create_model": "tembed.models",
    "list_models": "tembed.models",
    "Hardware": "tembed.training",
    "Recipe": "tembed.training",
    "Run": "tembed.training",
    "evaluate": "tembed.training",
    "load": "tembed.training",
    "train": "tembed.training",
}
_SUBPACKAGES = ("analysis", "data", "maximizers", "models", "training")

__all__ = [*_HOME, *_SUBPACKAGES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return import_module(f"tembed.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tembed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
