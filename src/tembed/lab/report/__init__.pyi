from .analysis_report import write_analysis as write_analysis
from .evaluation_report import write_evaluation as write_evaluation
from .grid_report import write_grid_report as write_grid_report
