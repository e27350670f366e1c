"""The public names. ``data``, ``training``, ``grid``, ``analysis`` and ``report`` are rooms of the laboratory."""

from . import maximizers as maximizers
from . import models as models
from . import trained as trained
from .attachment.attached import logits_only as logits_only
from .attachment.attaching import attach as attach
from .attachment.attaching import detach as detach
from .attachment.dry_run import list_layers as list_layers
from .attachment.in_use import disabled as disabled
from .attachment.in_use import load_block as load_block
from .attachment.in_use import save_block as save_block
from .attachment.in_use import status as status
from .attachment.receptive_fields import receptive_fields as receptive_fields
from .block import FeatureEmbedding as FeatureEmbedding
from .lab import analysis as analysis
from .lab import data as data
from .lab import grid as grid
from .lab import report as report
from .lab import training as training
from .lab.training.evaluation import evaluate as evaluate
from .lab.training.hardware import Hardware as Hardware
from .lab.training.loop import train as train
from .lab.training.recipe import Recipe as Recipe
from .lab.training.run import Run as Run
from .loss import EmbeddingLoss as EmbeddingLoss
from .models.network import Output as Output
from .models.network import Trace as Trace
from .models.registry import create_model as create_model
from .models.registry import list_models as list_models
from .trained.describing import describe as describe
from .trained.hub import save_pretrained as save_pretrained
from .trained.predicting import predict as predict
from .trained.weights_file import load as load

__version__: str
