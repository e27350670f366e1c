"""Feature embedding by template matching as a ResNet block (BMVC 2022).

Names are imported when first used, so that ``tembed --help`` does not wait for torch.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tembed import analysis as analysis
    from tembed import data as data
    from tembed import export as export
    from tembed import maximizers as maximizers
    from tembed import training as training
    from tembed.attachment import attach as attach
    from tembed.attachment import detach as detach
    from tembed.attachment import list_layers as list_layers
    from tembed.attachment import logits_only as logits_only
    from tembed.embedding import FeatureEmbedding as FeatureEmbedding
    from tembed.export import save_pretrained as save_pretrained
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
    from tembed.training import predict as predict
    from tembed.training import train as train

_HOME = {
    "attach": "attachment",
    "detach": "attachment",
    "list_layers": "attachment",
    "logits_only": "attachment",
    "FeatureEmbedding": "embedding",
    "EmbeddingLoss": "losses",
    "Output": "models",
    "Trace": "models",
    "create_model": "models",
    "list_models": "models",
    "Hardware": "training",
    "Recipe": "training",
    "Run": "training",
    "evaluate": "training",
    "load": "training",
    "predict": "training",
    "save_pretrained": "export",
    "train": "training",
}
_SUBPACKAGES = ("analysis", "data", "export", "maximizers", "models", "training")

__getattr__, __dir__, __all__ = lazy("tembed", _HOME, _SUBPACKAGES)
__all__ += ["__version__"]
