from .card import model_card as model_card
from .hub import save_pretrained as save_pretrained
from .onnx_file import OnnxFile as OnnxFile
from .onnx_file import to_onnx as to_onnx
from .predicting import Prediction as Prediction
from .predicting import predict as predict
from .weights_file import export_weights as export_weights
from .weights_file import load as load
