"""onnxruntime gives what torch gives, for any batch and image size, from a file that describes itself."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.onnx import MEAN, STD, check_agreement, expected, open_session, random_shapes, run, seasoned
from torch import Tensor, nn

import tembed.trained.onnx_file
from tembed import maximizers
from tembed.block import FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.models.description import Description
from tembed.models.network import Network, Trace
from tembed.models.registry import create_model
from tembed.models.resnet import Bottleneck
from tembed.trained.checksummed import checksum
from tembed.trained.onnx_check import largest_difference, shapes
from tembed.trained.onnx_file import NamedOutputs, OnnxFile, to_onnx

CLASSES = ("cat", "dog", "ship", "Zug")


class Exported(NamedTuple):
    model: nn.Module
    file: OnnxFile
    session: onnxruntime.InferenceSession


def with_maximizer(name: str) -> Network:
    """One bottleneck unit, because exporting takes longer than a unit is worth."""
    unit = Bottleneck(8, 6, 8, maximizer=partial(maximizers.create, name))
    return Network(nn.Conv2d(3, 8, 3, padding=1), [unit, *map(nn.Identity, range(2))], None, nn.Identity(), 8, 4)


CASES = {
    "rn26-embed": partial(create_model, "rn26-embed", len(CLASSES), softmax_on_bn=True, smooth_shortcut=True),
    "entropic": partial(with_maximizer, "entropic"),
    "perturbed": partial(with_maximizer, "perturbed"),
}


@pytest.fixture(scope="module", params=CASES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    model = seasoned(CASES[request.param]())
    path = tmp_path_factory.mktemp("onnx") / "network.onnx"
    made = to_onnx(model, path, example=32, classes=CLASSES, mean=MEAN, std=STD)
    return Exported(model, made, open_session(path))


@pytest.mark.slow
def test_onnxruntime_agrees_with_torch_for_any_batch_and_image_size(exported: Exported) -> None:
    assert exported.file.free == ("batch", "height", "width")
    assert exported.file.difference <= 1e-4
    for number, shape in enumerate(random_shapes(8, 8, 48)):
        images = torch.rand(shape, generator=torch.Generator().manual_seed(number))
        check_agreement(exported.model, exported.session, images)


@pytest.mark.slow
def test_the_file_is_small_and_needs_only_standard_operators(exported: Exported) -> None:
    model = onnx.load(exported.file.path)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.domain for entry in model.opset_import] == [""]
    assert len(model.functions) == 0
    assert len(model.graph.node) == exported.file.nodes < 300
    assert b"site-packages" not in exported.file.path.read_bytes()  # nothing about the machine it was made on


@pytest.mark.slow
def test_the_file_describes_itself(exported: Exported) -> None:
    facts = exported.session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == list(CLASSES)
    assert (json.loads(facts["mean"]), json.loads(facts["std"])) == (list(MEAN), list(STD))
    assert facts.get("model", "") == exported.model.description.model
    assert "from 0 to 1" in facts["images"]
    assert exported.session.get_inputs()[0].shape == ["batch", 3, "height", "width"]


ALONE = """
import importlib.util, json, sys
import numpy, onnxruntime
for package in ("tembed", "torch", "onnx"):
    assert importlib.util.find_spec(package) is None, package
session = onnxruntime.InferenceSession(sys.argv[1])
names = [output.name for output in session.get_outputs()]
numpy.savez(sys.argv[3], **dict(zip(names, session.run(None, {"images": numpy.load(sys.argv[2])}))))
print(json.loads(session.get_modelmeta().custom_metadata_map["classes"])[3])
"""


@pytest.mark.process
@pytest.mark.slow
def test_the_file_runs_where_only_onnxruntime_and_numpy_are_installed(exported: Exported, tmp_path: Path) -> None:
    """A folder with onnxruntime and its dependencies is all that this Python can import from."""
    packages = tmp_path / "packages"
    packages.mkdir()
    installed = Path(onnxruntime.__file__).parents[1]
    for name in ("onnxruntime", "numpy", "numpy.libs", "flatbuffers", "packaging", "google"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    images = torch.rand(2, 3, 21, 34)
    np.save(tmp_path / "images.npy", images.numpy())
    arguments = [exported.file.path, tmp_path / "images.npy", tmp_path / "found.npz"]
    code = f"import sys; sys.path.insert(0, {str(packages)!r})\n{ALONE}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Zug"
    found = np.load(tmp_path / "found.npz")
    for name, value in expected(exported.model, images).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), value, atol=1e-4 * max(1, value.abs().max()), rtol=0)


def small(classes: int = 3) -> Network:
    """A network with a block that exports in seconds."""
    torch.manual_seed(0)
    stages = [nn.Identity(), nn.MaxPool2d(2), nn.Identity()]
    block = FeatureEmbedding(8, classes)
    return seasoned(Network(nn.Conv2d(3, 8, 3, padding=1), stages, block, nn.Identity(), 8, classes))


@pytest.fixture(scope="module")
def exported_small(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """From a model in training mode without a description."""
    model = small().train()
    made = to_onnx(model, tmp_path_factory.mktemp("onnx") / "new" / "small.onnx", example=16)
    return Exported(model, made, open_session(made.path))


def test_the_model_itself_is_left_as_it_is(exported_small: Exported) -> None:
    model, fresh = exported_small.model, small().state_dict()
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(fresh[name], tensor) for name, tensor in model.state_dict().items())


def test_a_network_whose_normalisation_is_unknown_takes_normalised_images(exported_small: Exported) -> None:
    images = torch.randn(2, 3, 10, 14)
    with torch.no_grad():
        logits = small()(images).logits
    torch.testing.assert_close(run(exported_small.session, images)["logits"], logits, atol=1e-5, rtol=1e-5)
    facts = exported_small.session.get_modelmeta().custom_metadata_map
    assert "already normalised" in facts["images"]
    assert "classes" not in facts


def test_the_check_finds_a_file_of_other_weights(exported_small: Exported) -> None:
    one, other, images = small(), small(), torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        other.block.match.score.weight[1] *= 1.01
    content = exported_small.file.path.read_bytes()
    assert largest_difference(NamedOutputs(one, None, None), content, images, ("batch", "height")) < 1e-5
    assert largest_difference(NamedOutputs(other, None, None), content, images, ("batch", "height")) > 1e-4


class FixedSize(nn.Module):
    """A network for images of 12x12 pixels only."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 12 * 12, 4)

    def trace(self, x: Tensor) -> Trace:
        return Trace(x, None, None, None, None, x, self.head(x.flatten(1)))


def test_the_image_size_is_fixed_where_the_network_fixes_it(tmp_path: Path) -> None:
    model = FixedSize().eval()
    made = to_onnx(model, tmp_path / "x.onnx", example=12, mean=MEAN, std=STD)
    assert (made.free, made.outputs) == (("batch",), ("logits",))
    session = open_session(tmp_path / "x.onnx")
    assert session.get_inputs()[0].shape == ["batch", 3, 12, 12]
    for batch in (1, 5):
        images = torch.rand(batch, 3, 12, 12)
        normalised = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        torch.testing.assert_close(run(session, images)["logits"], model.trace(normalised).logits.detach())


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_metadata_leave_out_the_recipe_and_score_of_other_weights(tmp_path: Path, changed: bool) -> None:
    model = FixedSize().eval()
    sha256 = "of the loaded weights" if changed else checksum(model.state_dict())
    model.description = Description("fixed", {}, 12, val_accuracy=0.9, recipe={"data": "x"}, weights_sha256=sha256)
    made = to_onnx(model, tmp_path / "x.onnx")
    facts = open_session(made.path).get_modelmeta().custom_metadata_map
    assert ("recipe" not in facts, "val_accuracy" not in facts) == (changed, changed)
    assert ("started_from" in facts) == changed


@pytest.mark.slow
def test_a_file_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tembed.trained.onnx_file, "largest_difference", lambda *_: 0.5)
    with pytest.raises(TembedError, match=r"cannot be exported to ONNX: onnxruntime differs from torch by 5\.0e-01"):
        to_onnx(FixedSize().eval(), tmp_path / "x.onnx", example=12)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    with pytest.raises(TembedError, match=r"'perturbed-sampled' draws noise .* maximizer 'perturbed'"):
        to_onnx(create_model("rn20", maximizer="perturbed-sampled"), path)
    with pytest.raises(TembedError, match=r"Linear is not a network of this package: .*tembed\.attach"):
        to_onnx(nn.Linear(2, 2), path)
    with pytest.raises(TembedError, match=r"`example` has the shape \(3, 8, 8\)"):
        to_onnx(small(), path, example=torch.rand(3, 8, 8))
    with pytest.raises(TembedError, match="size of the images is unknown: give `example`"):
        to_onnx(small(), path)
    with pytest.raises(TembedError, match="both `mean` and `std`"):
        to_onnx(small(), path, example=16, mean=MEAN)
    with pytest.raises(TembedError, match="2 names, and the network has 3 classes"):
        to_onnx(small(), path, example=16, classes=("a", "b"))
    (tmp_path / "file").touch()
    with pytest.raises(TembedError, match=r"cannot write .*file \(File exists\)"):
        to_onnx(FixedSize().eval(), tmp_path / "file" / "x.onnx", example=12)
    assert not path.exists()


def test_an_export_is_checked_on_one_image_on_more_and_on_lower_higher_narrower_and_wider_ones() -> None:
    found = list(shapes((2, 3, 32, 32), {"batch", "height", "width"}))
    assert found[0] == (2, 3, 32, 32)
    for axis, size in ((0, 2), (2, 32), (3, 32)):
        sizes = [shape[axis] for shape in found]
        assert min(sizes) < size < max(sizes)
    assert list(shapes((2, 3, 32, 32), ())) == found[:1]
    assert {shape[2] for shape in shapes((2, 3, 32, 32), {"width"})} == {32}
