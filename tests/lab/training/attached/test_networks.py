"""Networks from elsewhere through train, evaluate, the analysis, runs and report."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.datasets import planes
from support.foreign import timm_model
from support.kills import fingerprint
from support.progress import Crash, CrashAfter

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.analysis.features import extract_features
from tembed.lab.data.loading import load as load_data
from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.initial_weights import read_weights
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, find_runs, run_name
from tembed.lab.training.starting import build_start
from tembed.models.foreign import is_foreign, parse_foreign, with_block
from tembed.models.registry import model_info
from tembed.trained.weights_file import load as load_network

RESNET = Recipe("timm:resnet10t@layer2", "tiny", epochs=1, batch_size=26, init="random", image_size=32)


def test_names_are_read_without_importing_anything() -> None:
    parsed = parse_foreign("timm:vit_tiny_patch16_224.augreg@blocks.8:aux")
    assert (parsed.source, parsed.factory, parsed.at, parsed.block) == (
        "timm",
        "vit_tiny_patch16_224.augreg",
        "blocks.8",
        "aux",
    )
    assert model_info("no.such.module:make@layer").has_block
    assert not model_info("timm:resnet18@layer3:none").has_scores
    assert with_block("timm:a@b:aux", "embed") == "timm:a@b"
    assert not is_foreign("rn26-embed")
    for wrong in ("timm:resnet18", "timm:resnet18@", "timm:a b@c", "a/b:c@d", "timm:hf_hub:x/y@z", "timm:a@b:both"):
        with pytest.raises(TembedError, match="LAYER"):
            parse_foreign(wrong)
    with pytest.raises(TembedError, match="`block` does not apply"):
        with_block("rn26", "aux")


def test_the_folder_name_is_safe_and_no_two_recipes_share_it() -> None:
    names = [run_name(Recipe(model, "tiny", init="random")) for model in ("timm:a@b.c", "timm:a@b", "timm:a@b:none")]
    names.append(run_name(Recipe("timm:a@b", "tiny", init="folder/file.pth")))
    assert len(set(names)) == 4
    assert all(set(":@/") & set(name) == set() for name in names)
    assert names[0].startswith("timm-a-b.c-tiny-paper-0-")


@pytest.mark.slow
def test_a_network_of_timm_trains_and_is_evaluated_and_traced(tmp_path: Path) -> None:
    run = train(RESNET, tmp_path / "run")
    assert run.result is not None
    assert evaluate(run.folder).to_json().items() <= run.result["test"].items()
    about = json.loads((run.folder / "network.json").read_text())
    assert about["factory"] == "timm:resnet10t"
    assert about["arguments"] == {"num_classes": 10}
    assert about["init"] == "random"
    network = load_network(run.folder)
    assert network.description.mean == (0.485, 0.456, 0.406)  # the network's own, not that of the images
    test = load_data("tiny").test
    found = extract_features(network, test)
    assert found.map_size == (4, 4)  # 32 pixels at a stride of 8
    assert found.softmax is not None
    assert found.softmax.shape == (len(test) * 16, 10)
    mean, std = (torch.tensor(triple)[:, None, None] for triple in network.description.normalisation)
    pixels = (planes(test) / 255 - mean) / std
    with torch.no_grad():
        logits = network(pixels).logits
    np.testing.assert_allclose(found.logits, logits.numpy(), rtol=1e-4, atol=1e-4)


def test_fields_of_attached_networks_do_not_apply_to_ours() -> None:
    with pytest.raises(TembedError, match="`freeze` does not apply to rn26"):
        Recipe("rn26", "tiny", freeze=True).complete()
    with pytest.raises(TembedError, match="`start_scale`"):
        Recipe("timm:a@b", "tiny", freeze=True, start_scale=0.5).complete()
    with pytest.raises(TembedError, match=r"tembed\.attach"):
        model_info("timm:a@b").build(3, 32)


def test_weights_that_cannot_be_had_are_refused_with_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timm_model("resnet10t")  # imports the hub
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    assert main(["train", "timm:resnet18@layer3", "--data", "tiny", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "pretrained weights of resnet18 cannot be had" in said
    assert "--init" in said
    assert "random" in said
    assert not (tmp_path / "run" / "network.json").exists()
    assert main(["train", "timm:resnet18x@layer3", "--data", "tiny", "--init", "random"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["train", "tembed:rn26@stage3", "--data", "tiny", "--freeze"]) == 2
    assert "rn26/cifar10" in capsys.readouterr().err
    assert main(["train", "timm:resnet10t@layer9", "--data", "tiny", "--init", "random", "--image-size", "32"]) == 2
    said = capsys.readouterr().err
    assert "layer3 (1, 256, 2, 2)" in said


@pytest.mark.process
def test_code_of_the_user_is_imported_only_if_named_on_the_command(
    code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = code.stem
    line = f"train {name}:small@4 --data dots --preset fast --epochs 1 --batch-size 13 --out run --quiet"
    assert main(line.split()) == 0
    about = json.loads((tmp_path / "run" / "network.json").read_text())
    assert about["factory"] == f"{name}:small"
    assert len(about["source_sha256"]) == len(about["weights_sha256"]) == 64
    monkeypatch.setenv("TEMBED_PLUGINS", "")
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 2
    assert f"--plugin {name}" in capsys.readouterr().err
    assert main(["evaluate", "run", "--plugin", name, "--quiet"]) == 0
    assert main(["train", f"{name}:broken@4", "--data", "dots"]) == 2
    assert "returned a str" in capsys.readouterr().err
    assert main(["train", f"{name}:missing@4", "--data", "dots"]) == 2
    assert "no function 'missing'" in capsys.readouterr().err
    code.write_text("raise SystemExit('imported')")
    check = (
        "import sys; from tembed.cli.main import main; "
        "assert main(['runs', '.']) == 0; assert main(['report', 'run', '--out', 'report']) == 0; "
        f"assert {name!r} not in sys.modules and 'timm' not in sys.modules"
    )
    monkeypatch.delenv("TEMBED_PLUGINS")
    ended = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f"{name}:small@4" in ended.stdout


def test_a_run_of_an_attached_network_resumes_to_the_same_bits(named: str, tmp_path: Path) -> None:
    recipe = Recipe.fast(named, "dots", epochs=2, batch_size=13)
    reference = train(recipe, tmp_path / "reference")

    with pytest.raises(Crash):
        train(recipe, tmp_path / "run", progress=CrashAfter(80), checkpoint_seconds=0)
    train(recipe, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(reference.folder)


def test_a_start_that_fails_leaves_the_folder_to_another_recipe(named: str, tmp_path: Path) -> None:
    """As where pretrained weights cannot be had: the next command names a weights file."""
    torch.save({"odd": torch.zeros(1)}, tmp_path / "others.pth")
    recipe = Recipe.fast(named, "dots", epochs=1, batch_size=13, init=str(tmp_path / "others.pth"))
    with pytest.raises(TembedError, match="does not hold the weights"):
        train(recipe, tmp_path / "run")
    assert find_runs(tmp_path / "run") == []
    assert train(dataclasses.replace(recipe, init="random"), tmp_path / "run").result is not None


@pytest.mark.parametrize("kind", ["plain.pth", "nested.pth", "plain.safetensors"])
def test_weights_files_of_other_programs_are_read(kind: str, tmp_path: Path) -> None:
    source = timm_model("resnet10t", 6)
    path, tensors = tmp_path / kind, source.state_dict()
    if kind == "plain.safetensors":
        save_file(tensors, path)
    else:
        torch.save(
            tensors if kind == "plain.pth" else {"state_dict": {f"module.{k}": v for k, v in tensors.items()}}, path
        )
    recipe = Recipe("timm:resnet10t@layer2", "tiny", init=str(path)).complete()
    built = build_start(recipe, 6, 32)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(built.model.eval()(x).logits, source.eval()(x))


def test_weights_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    def refused(tensors: object, freeze: bool = False) -> str:
        torch.save(tensors, tmp_path / "file.pth")
        recipe = Recipe("timm:resnet10t@layer2", "tiny", init=str(tmp_path / "file.pth"), freeze=freeze).complete()
        with pytest.raises(TembedError) as caught:
            build_start(recipe, 6, 32)
        return str(caught.value)

    good = timm_model("resnet10t", 6).state_dict()
    assert "another number of classes (fc.weight is (4, 512), not (6, 512))" in refused(
        timm_model("resnet10t", 4).state_dict()
    )
    said = refused({name: value for name, value in good.items() if "layer1" not in name} | {"odd": torch.zeros(1)})
    assert "it lacks layer1.0.conv1.weight" in said
    assert "more; it has in addition odd" in said
    assert "it lacks layer1.0.conv1.weight" in refused(
        {k: v for k, v in good.items() if "layer1" not in k}, freeze=True
    )
    assert "does not hold a state dict" in refused([1, 2])
    (tmp_path / "file.pth").write_bytes(b"no weights")
    with pytest.raises(TembedError, match="cannot be read as weights"):
        read_weights(tmp_path / "file.pth")
    with pytest.raises(TembedError, match="not a run folder"):
        read_weights("no/such/file.pth")


def test_a_single_patch_is_warned_of_once_in_one_line(
    code: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = f"train {code.stem}:small@5 --data dots --preset fast --epochs 1 --batch-size 13 --out run"
    assert main(line.split()) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "one patch per image" in line]
    assert said == ["warning: the map behind '5' is a single position, so the block sees one patch per image"]
    assert main(["evaluate", "run", "--plugin", code.stem, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_frozen_network_needs_no_weights_behind_its_layer(tmp_path: Path) -> None:
    """Neither the head nor its number of classes, and the features are those of the weights."""
    source = timm_model("resnet10t", 4)
    kept = {name: value for name, value in source.state_dict().items() if "layer4" not in name}
    torch.save(kept, tmp_path / "file.pth")
    recipe = Recipe.from_preset("frozen", "timm:resnet10t@layer2", "tiny", init=str(tmp_path / "file.pth")).complete()
    built = build_start(recipe, 6, 32)
    found: list[torch.Tensor] = []
    source.eval().layer2.register_forward_hook(lambda *call: found.append(call[2]))
    x = torch.randn(2, 3, 32, 32)
    source(x)
    torch.testing.assert_close(built.model.features(x), found[0])


def test_the_top_layers_are_listed_at_any_depth(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in transformers of Hugging Face, whose layers lie three modules deep in containers that return no map."""
    code.write_text(
        """
from torch import nn

class Deep(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.vit = nn.ModuleDict({"encoder": nn.ModuleDict({"layer": nn.ModuleList(
            [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(2)])})})
        self.head = nn.Linear(3, num_classes)

    def forward(self, x):
        for layer in self.vit["encoder"]["layer"]:
            x = layer(x)
        return self.head(x.mean((2, 3)))
"""
    )
    assert main(["layers", f"{code.stem}:Deep", "--image-size", "16"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:-1]] == ["vit.encoder.layer.0", "vit.encoder.layer.1"]
    assert said[-1] == "4 more inside of these: --all lists them"


def test_an_error_names_the_flag_of_the_image_size(capsys: pytest.CaptureFixture[str]) -> None:
    line = "train timm:vit_tiny_patch16_224@blocks.5 --data tiny --init random --epochs 1"
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert "--image-size" in error
    assert "--example" not in error


def test_layers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "timm:resnet10t", "--image-size", "64"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("layer3 ")]
    assert line.split() == ["layer3", "1", "x", "256", "x", "4", "x", "4", "nchw", "256", "4x4", "16", "image"]
    (line,) = [line for line in said.splitlines() if line.startswith("layer1 ")]
    assert line.split()[-1] == "31"  # 1 + 2 + 4 + 4 + 4 in the stem, + 8 + 8 in a unit of 3x3 kernels
    assert "--all" in said
    for word in [line.split()[0] for line in said.splitlines()[1:-1]]:
        assert "." not in word or word.count(".") <= 1
    assert main(["layers", "rn26"]) == 2
    assert "timm:NAME" in capsys.readouterr().err


def test_runs_are_found_by_the_other_commands(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(Recipe.fast(named, "dots", epochs=1, batch_size=13), Path("runs/one"))
    assert main(["runs"]) == 0
    assert named in capsys.readouterr().out
    assert main(["runs", "--save", "saved"]) == 0
    (saved,) = Path("saved").iterdir()
    assert ":" not in saved.name
    assert Run.open("runs/one").recipe.model == named
