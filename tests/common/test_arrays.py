"""What a notebook prints is short, and names shapes instead of numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.features import made_features, save_untrained

from tembed.block import FeatureEmbedding
from tembed.common.arrays import brief, briefly, probability
from tembed.lab.data.loading import load
from tembed.models.registry import create_model
from tembed.trained.weights_file import load as load_network


def test_a_value_is_described_on_one_line() -> None:
    assert brief(torch.zeros(2, 3)) == "float32 (2, 3)"
    assert brief(np.zeros((2, 3), np.uint8)) == "uint8 (2, 3)"
    assert brief(None) == "None"
    assert brief((1, 2)) == "(1, 2)"
    assert brief(tuple(range(500))) == "tuple of 500"
    assert briefly("Pair", a=torch.zeros(4, dtype=torch.int64), b="x") == "Pair(a=int64 (4,), b='x')"


def test_maps_print_their_shapes() -> None:
    model = create_model("rn26-embed", 4).eval()
    with torch.no_grad():
        trace, output = model.trace(torch.zeros(2, 3, 32, 32)), model(torch.zeros(2, 3, 32, 32))
    assert repr(trace).startswith("Trace(block_input=float32 (2, 128, 8, 8), scores=float32 (2, 4, 8, 8), ")
    assert repr(output) == "Output(logits=float32 (2, 4), scores=float32 (2, 4, 8, 8))"
    matched = FeatureEmbedding(6, 4).steps(torch.zeros(1, 6, 4, 4))
    assert repr(matched).startswith("BlockSteps(features=float32 (1, 6, 4, 4), scores=float32 (1, 4, 4, 4)")
    features = made_features(np.array([0, 1]))
    assert "softmax=float32 (8, 4)" in repr(features)
    assert len(repr(features)) < 500


@pytest.mark.usefixtures("use_worlds")
def test_data_prints_its_size(tmp_path: Path) -> None:
    splits = load("tiny")
    assert repr(splits) == "Splits(tiny: 130 train, 30 val, 40 test images of 16x16, 10 classes, paper split 0)"
    assert repr(splits.test) == "ImageSet(40 images of 16x16, 10 classes)"
    network = load_network(save_untrained(tmp_path / "w.safetensors", "rn26", "tiny", splits.test.classes, 16))
    assert repr(network.description) == "Description(rn26 on tiny, 10 classes, 16x16)"


def test_a_low_probability_is_not_written_as_zero() -> None:
    assert [probability(p) for p in (1.0, 0.875, 0.01, 0.0012, 0.0)] == ["1.00", "0.88", "0.01", "0.0012", "0.00"]
