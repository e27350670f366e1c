"""The networks of the paper (§3.4, appendix A). Importing this package registers them all."""

from tembed.models import densenet, resnet, wide_resnet
from tembed.models.network import Network, Output, Trace
from tembed.models.origin import Origin
from tembed.models.registry import (
    ModelInfo,
    canonical_name,
    create_model,
    list_models,
    model_info,
    register_model,
)

__all__ = [
    "ModelInfo",
    "Network",
    "Origin",
    "Output",
    "Trace",
    "canonical_name",
    "create_model",
    "densenet",
    "list_models",
    "model_info",
    "register_model",
    "resnet",
    "wide_resnet",
]
