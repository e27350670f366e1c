"""The analysis runs on a GPU, where torch refuses some operations if only deterministic ones are allowed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURES = """
import copy, json, sys
from pathlib import Path

import torch
import torch.nn.functional as F
from support.datasets import store_world
from support.features import save_untrained
from support.refusing_device import refusing_device

from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.knock_outs import trained_knock_outs
from tembed.lab.analysis.units import measure_units
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.loading import load
from tembed.trained.weights_file import load as load_network

folder = Path(sys.argv[1])
store_world(folder, "dots", 100, 8)
images = load("dots", root=folder).test
network = load_network(save_untrained(folder / "w.safetensors", "rn26-embed", "dots", images.classes, 8))
measures = {
    "the patch loss": lambda model: F.cross_entropy(model.trace(torch.ones(2, 3, 8, 8).to(model.device)).scores,
                                                    torch.zeros(2, 2, 2, dtype=torch.int64).to(model.device)).item(),
    "knock-outs": lambda model: trained_knock_outs(model, images).gradient_cosine,
    "units": lambda model: sum(float(unit.points.eta.mean()) for unit in measure_units(model, images)),
    "untrained": lambda model: float(untrained(model, images, 0).block.values.weight.detach().cpu().abs().mean()),
    "features": lambda model: float(extract_features(model, images).logits.mean()),
}
with refusing_device() as device:
    found = {}
    for name, measure in measures.items():
        values = []
        for place in (torch.device("cpu"), device):
            model = copy.deepcopy(network).to(place)
            model.device = place
            try:
                values.append(measure(model))
            except RuntimeError as error:
                values.append(str(error))
        found[name] = values
    torch.use_deterministic_algorithms(True)
    try:
        measures["the patch loss"](model)
    except RuntimeError as error:
        found["refused"] = str(error)
print(json.dumps(found))
"""
"""Runs in its own process: a device has to be there before torch computes its first gradient."""


@pytest.mark.process
def test_the_analysis_measures_the_same_on_a_device_that_refuses(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, "-W", "ignore", "-c", MEASURES, str(tmp_path)]
    ended = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert "deterministic" in found.pop("refused")
    for name, (here, there) in found.items():
        assert there == pytest.approx(here, rel=1e-4), name
