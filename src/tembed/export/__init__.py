"""Trained networks for use elsewhere: ONNX files, and folders in the layout of the Hugging Face hub."""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.export.card import model_card as model_card
    from tembed.export.hub import save_pretrained as save_pretrained
    from tembed.export.onnx import OnnxFile as OnnxFile
    from tembed.export.onnx import to_onnx as to_onnx

_HOME = {"OnnxFile": "onnx", "model_card": "card", "save_pretrained": "hub", "to_onnx": "onnx"}

__getattr__, __dir__, __all__ = lazy("tembed.export", _HOME)
