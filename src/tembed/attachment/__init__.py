"""The block behind any submodule of any network: CNN or transformer, trained or frozen."""

from tembed.attachment.attached import Attached, LogitsOnly, logits_only
from tembed.attachment.attaching import attach, detach
from tembed.attachment.dry_run import Layer, list_layers
from tembed.attachment.feature_maps import FeatureLayout

__all__ = ["Attached", "FeatureLayout", "Layer", "LogitsOnly", "attach", "detach", "list_layers", "logits_only"]
