"""From a folder of photographs to figures in three commands: import, train a frozen network, analyse."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tembed.cli.main import main
from tembed.lab.training.run import Run


def store_photos(folder: Path, count: int) -> None:
    """JPEG files of many sizes in one folder per class: regions of the two photographs that come with scikit-learn."""
    dice = np.random.default_rng(0)
    photographs = dict(zip(("temple", "flower"), load_sample_images().images, strict=True))
    for name, photograph in photographs.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            height, width = dice.integers(90, 260, 2)
            top, left = dice.integers(0, photograph.shape[0] - height), dice.integers(0, photograph.shape[1] - width)
            region = Image.fromarray(photograph[top : top + height, left : left + width])
            region.save(folder / name / f"{number}.jpg", quality=90)


@pytest.mark.slow
def test_photographs_to_figures(
    tmp_path: Path, quick_analysis: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TEMBED_CACHE", str(tmp_path / "cache"))
    store_photos(tmp_path / "photos", 40)
    assert main(["data", "import", "photos", "--name", "mine"]) == 0
    assert "every image becomes 224x224" in capsys.readouterr().err  # they have no common size
    line = "train tembed:rn26@stage3 --data mine --init rn26/cifar10 --freeze --batch-size 16 --epochs 8"
    assert main([*line.split(), "--out", "runs/mine", "--quiet"]) == 0
    result = Run.open("runs/mine").result
    assert result is not None
    assert result["test_accuracy"] > 0.7  # a temple is not a flower, even for a network that was trained on neither
    assert main(["analyze", "runs/mine", "--images-per-class", "3", "--no-network", "--quiet"]) == 0
    figures = {path.name for path in Path("runs/mine/analysis/figures").glob("*.png")}
    assert {"geometry.png", "words.png"} <= figures, figures
    report = Path("runs/mine/analysis/report.md").read_text("utf-8")
    assert "6 test images, 384 patches of 8x8 maps" in report
    assert "untrained" in report  # the controls were built too
    capsys.readouterr()
    assert main(["explain", "runs/mine", "photos/temple/0.jpg"]) == 0
    assert "0.jpg" in capsys.readouterr().out
