"""The examples run, and the paper in one file is the library."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import tembed
from tembed.attachment.sources import timm
from tembed.common.plugins import load_plugins

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_in_one_file", EXAMPLES / "paper_in_one_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_paper_in_one_file_needs_no_tembed_and_200_lines() -> None:
    text = (EXAMPLES / "paper_in_one_file.py").read_text("utf-8")
    assert len(text.splitlines()) <= 200
    assert "import tembed" not in text
    assert "from tembed" not in text


def test_the_paper_in_one_file_is_the_library(one_file: ModuleType) -> None:
    torch.manual_seed(0)
    ours = tembed.create_model("rn26-embed", 10, softmax_on_bn=True, smooth_shortcut=True).double()
    theirs = one_file.RN26Ours().double()
    shapes = {name: value.shape for name, value in ours.named_parameters()}
    assert {name: value.shape for name, value in theirs.named_parameters()} == shapes
    theirs.load_state_dict(ours.state_dict())
    images, labels, loss = torch.randn(3, 8, 3, 32, 32).double(), torch.randint(10, (3, 8)), tembed.EmbeddingLoss()
    steps = [torch.optim.Adam(m.parameters(), 1e-3, weight_decay=1e-4) for m in (ours, theirs)]
    for x, y in zip(images, labels, strict=True):
        output, (logits, scores) = ours(x), theirs(x)
        torch.testing.assert_close(logits, output.logits, atol=1e-6, rtol=0)
        torch.testing.assert_close(scores, output.scores, atol=1e-6, rtol=0)
        losses = loss(output, y), one_file.loss_of(logits, scores, y)
        assert losses[1].item() == pytest.approx(losses[0].item(), abs=1e-6)
        for one, step in zip(losses, steps, strict=True):
            step.zero_grad()
            one.backward()
            step.step()
    output, (logits, scores) = ours.eval()(images[0]), theirs.eval()(images[0])
    torch.testing.assert_close(logits, output.logits, atol=1e-6, rtol=0)
    assert one_file.loss_of(logits, scores, labels[0]).item() == pytest.approx(loss(output, labels[0]).item(), abs=1e-6)


def test_its_split_is_the_papers_shares_of_every_class(one_file: ModuleType) -> None:
    labels = torch.arange(10).repeat(20)
    parts = one_file.split(labels)
    assert [torch.bincount(labels[part]).tolist() for part in parts] == [[13] * 10, [3] * 10, [4] * 10]
    assert sorted(torch.cat(parts).tolist()) == list(range(200))


def test_its_crops_are_windows_of_the_padded_image(one_file: ModuleType) -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 3, 32, 32)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))[0]
    windows = [padded[:, r : r + 32, c : c + 32] for r in range(9) for c in range(9)]
    found = set()
    for crop in one_file.augmented(image.repeat(60, 1, 1, 1)):
        both = [(k, m) for k, w in enumerate(windows) for m in (0, 1) if torch.equal(crop, w.flip(2) if m else w)]
        assert len(both) == 1
        found.add(both[0])
    assert len(found) > 30
    assert {mirrored for _, mirrored in found} == {0, 1}


@pytest.mark.process
def test_the_paper_in_one_file_trains(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    np.save(tmp_path / "images.npy", generator.integers(0, 256, (1000, 32, 32, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(1000) % 10)
    line = [sys.executable, str(EXAMPLES / "paper_in_one_file.py"), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"SHORTEN": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("983,032 parameters on ")
    assert "\ntest: " in done.stdout


@pytest.mark.parametrize("name", ["bn-entropic", "affine-entropic", "layernorm-entropic"])
def test_the_normalised_maximizers_differ_from_margin_soft_max_in_the_norm_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    if name not in tembed.maximizers.names():
        load_plugins(["normalised_maximizers"])
    maximizer = tembed.maximizers.create(name, 6)
    a = torch.randn(4, 6, 5, 5) * 3 + 1
    if name == "bn-entropic":
        a_hat = (a - a.mean((0, 2, 3), keepdim=True)) / (a.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    elif name == "layernorm-entropic":
        a_hat = (a - a.mean((1, 2, 3), keepdim=True)) / (a.var((1, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    else:
        a_hat = a
    torch.testing.assert_close(maximizer(a), 17 * tembed.maximizers.entropic(a_hat), atol=1e-4, rtol=1e-4)
    assert sum(p.numel() for p in maximizer.parameters()) == 12  # a gain and a bias for each channel


# --- the block in other people's loops


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs an example by its name, shortened, in an empty folder, and returns its names."""
    timm()  # makes torchvision importable here, which timm and transformers look for
    monkeypatch.setenv("SHORTEN", "1")
    monkeypatch.chdir(tmp_path)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))


def learns(losses: list[float]) -> bool:
    third = len(losses) // 3
    return sum(losses[-third:]) < sum(losses[:third])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_shorten_it(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.stem not in ("paper_in_one_file", "normalised_maximizers"):
        assert len(text.splitlines()) < 60
        assert "SHORTEN=1" in text


def test_plain_pytorch_trains_the_block(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("plain_pytorch")
    assert learns(found["losses"])
    assert found["model"].block.values.weight.abs().max() > 0  # it starts with zero class vectors
    assert "embed block behind 5 (nchw), 10 classes" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")  # those of other people's packages
def test_lightning_trains_and_validates_it(run: Any) -> None:
    found = run("with_lightning")
    assert learns(found["wrapped"].losses)
    assert found["wrapped"].model.block.values.weight.abs().max() > 0
    assert set(found["found"]) == {"head", "patches"}


@pytest.mark.filterwarnings("default")
def test_hugging_faces_trainer_minimises_the_loss_of_the_paper(run: Any) -> None:
    found = run("with_hugging_face")
    trainer, model = found["trainer"], found["model"]
    last = trainer.state.log_history[-1]
    held_out = trainer.eval_dataset
    with torch.no_grad():
        expected = tembed.EmbeddingLoss()(model.eval()(held_out.images), held_out.labels)
    assert last["eval_loss"] == pytest.approx(expected.item(), abs=1e-4)
    assert last["eval_head"] > 0
    assert last["eval_patches"] > 0
    assert model.block.values.weight.abs().max() > 0


@pytest.mark.filterwarnings("default")
def test_a_network_of_timm_keeps_its_answers_and_then_learns(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("with_timm")
    assert "logits before and after `attach` are equal: True" in capsys.readouterr().out
    assert learns(found["losses"])
    assert Path("block.safetensors").stat().st_size < 400_000  # the network has 45 MB


def test_a_frozen_backbone_stays_as_it_is(run: Any) -> None:
    found = run("frozen_backbone")
    assert learns(found["losses"])
    shipped = tembed.load("rn26/cifar10").state_dict()
    assert all(torch.equal(value, shipped[name]) for name, value in found["backbone"].state_dict().items())


@pytest.mark.process
def test_torch_hub_finds_every_shipped_network() -> None:
    """In a process of its own, because the file changes the import path."""
    lines = [
        "import torch",
        "from tembed.trained.weights_file import shipped",
        f"def load(*names): return torch.hub.load({str(EXAMPLES.parent)!r}, *names, source='local')",
        "for name in shipped():",
        "    assert load(name.replace('/', '_').replace('-', '_')).description.classes, name",
        "assert load('rn26_embed_cifar10')(torch.zeros(1, 3, 32, 32)).logits.shape == (1, 10)",
        "assert load('create_model', 'rn20', 7).num_classes == 7",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
