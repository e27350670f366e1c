"""Make the figures of the documents: python docs/figures/make.py ANALYSIS EXPLAINED.png

    tembed analyze rn26-embed/cifar10 --baseline rn26/cifar10 --out ANALYSIS
    tembed explain rn26-embed/cifar10 truck.png --out EXPLAINED   # the ninth truck of the test images, enlarged

Shrinks the pictures to the width of a page, in full colour, and copies the claims to results/analysis. Then
`python docs/figures/results.py` writes the table of verdicts.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
CLAIMS = HERE.parent.parent / "results" / "analysis" / "rn26-embed-cifar10.json"


def shrink(source: Path, name: str, width: int) -> None:
    """Write ``name`` with this width."""
    with Image.open(source) as picture:
        size = width, round(width * picture.height / picture.width)
        picture.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(HERE / name, optimize=True)


if __name__ == "__main__":
    analysis, explained = map(Path, sys.argv[1:])
    shrink(analysis / "figures" / "geometry.png", "geometry.png", 1000)
    shrink(analysis / "figures" / "words.png", "words.png", 1000)
    shrink(explained, "explained.png", 900)
    shutil.copy(analysis / "claims.json", CLAIMS)
