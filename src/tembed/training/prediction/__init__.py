"""Predictions for pictures that are not in a dataset, and tables of them."""

from tembed.training.prediction.predicting import Prediction as Prediction
from tembed.training.prediction.predicting import each_prediction as each_prediction
from tembed.training.prediction.predicting import predict as predict
