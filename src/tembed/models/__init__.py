"""The networks of the paper (§3.4, appendix A). Importing this package registers them all."""

from tembed.models import densenet, resnet, wide_resnet
from tembed.models.description import Description
from tembed.models.foreign import ForeignName, is_foreign, parse_foreign, with_block
from tembed.models.network import Network, Output, Trace
from tembed.models.registry import ModelInfo, canonical_name, create_model, list_models, model_info, register_model

__all__ = [
    "Description",
    "ForeignName",
    "ModelInfo",
    "Network",
    "Output",
    "Trace",
    "canonical_name",
    "create_model",
    "densenet",
    "is_foreign",
    "list_models",
    "model_info",
    "parse_foreign",
    "register_model",
    "resnet",
    "wide_resnet",
    "with_block",
]
