"""What the block sees in photographs: predictions of the patches, on the photograph and as a picture."""

from tembed.analysis.explanation.explaining import Explanation as Explanation
from tembed.analysis.explanation.explaining import each_explanation as each_explanation
from tembed.analysis.explanation.explaining import explain as explain
from tembed.analysis.explanation.writing import write_explanations as write_explanations
