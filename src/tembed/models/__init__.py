"""The networks of the paper (§3.4, appendix A). Importing this registers them all."""

from tembed.models import densenet, resnet, wide_resnet
from tembed.models.network import Network, Output, Trace
from tembed.models.registry import canonical_name, create_model, list_models, register_model

__all__ = [
    "Network",
    "Output",
    "Trace",
    "canonical_name",
    "create_model",
    "densenet",
    "list_models",
    "register_model",
    "resnet",
    "wide_resnet",
]
