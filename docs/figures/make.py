"""Make the figures of the README from an analysis: python docs/figures/make.py ANALYSIS EXPLAINED.png

    tembed analyze rn26-embed/cifar10 --baseline rn26/cifar10 --out ANALYSIS
    tembed explain rn26-embed/cifar10 IMAGE.png --out EXPLAINED

Shrinks the pictures to the width of the README and to few colours, so that each file is under 300 KB.
"""

import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
LARGEST = 300_000


def shrink(source: Path, name: str, width: int) -> None:
    """Write ``name`` with as many colours as `LARGEST` allows."""
    with Image.open(source) as picture:
        small = picture.convert("RGB").resize((width, round(width * picture.height / picture.width)))
    for colours in (256, 128, 64, 32):
        few = small.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # keeps rare colours
        few.save(HERE / name, optimize=True)
        if (HERE / name).stat().st_size < LARGEST:
            return
    raise SystemExit(f"{name} stays larger than {LARGEST:,} bytes: choose a smaller width")


if __name__ == "__main__":
    analysis, explained = map(Path, sys.argv[1:])
    shrink(analysis / "figures" / "geometry.png", "geometry.png", 1000)
    shrink(analysis / "figures" / "words.png", "words.png", 1000)
    shrink(explained, "explained.png", 900)
