"""The report of an evaluation: accuracy by class, confusions, calibration and the worst images."""

from tembed.analysis.evaluation.report import default_out as default_out
from tembed.analysis.evaluation.report import write_evaluation as write_evaluation
