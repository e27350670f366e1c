"""The compiled loss of a network is that of the plain one, for every image side, in one graph."""

import copy
import functools
import tempfile
from pathlib import Path

import pytest
import torch
from support.foreign import Plain
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir, triton_cache_dir

from tembed.attachment.attaching import attach
from tembed.attachment.frozen import BlockAndHead
from tembed.block import FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.common.files import private_folder
from tembed.lab.training.compiling import compile_loss
from tembed.lab.training.step_measures import Measured, MeasuredLoss, measured_loss
from tembed.loss import EmbeddingLoss
from tembed.maximizers.bn_relu import BNReLU
from tembed.models import densenet
from tembed.models.network import Network
from tembed.models.registry import create_model, list_models, model_info


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a user for whom torch has chosen its own folder for compiled code."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torchinductor_me"))
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    return tmp_path / "home" / "tembed"


@pytest.fixture
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda measure, **settings: measure)


def compiled_loss(model: nn.Module, batch: int, weight: float = 0.5) -> MeasuredLoss:
    return compile_loss(measured_loss(model, EmbeddingLoss(weight)), batch, torch.device("cpu"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.compile triggers warnings of its own
def test_a_compiled_network_has_the_gradients_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a `Network` with tiny stages, because compiling is slow. The code is where only the user can put code."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), BNReLU(4)), nn.Identity(), nn.Identity()]
    plain = Network(nn.Conv2d(3, 4, 1), stages, FeatureEmbedding(4, 3), nn.Identity(), 4, 3)
    compiled = copy.deepcopy(plain)
    measures = (measured_loss(plain, EmbeddingLoss(0.5)), compiled_loss(compiled, batch=3))
    labels = torch.tensor([0, 1, 2])
    for side in (8, 12):
        images = torch.randn(3, 3, side, side).to(memory_format=torch.channels_last)
        plain.zero_grad()
        compiled.zero_grad()
        found = [measure(images, labels) for measure in measures]
        torch.testing.assert_close(found[1], found[0])
        for each in found:
            each.loss.backward()
        for (name, p), q in zip(plain.named_parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], tensor)
    private = private_folder("inductor")
    assert private is not None
    assert list(private.rglob("*.so"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list_models())
def test_every_network_is_one_graph_with_its_block_and_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(densenet, "LAYERS", 3)  # saves time
    measure = measured_loss(create_model(name, num_classes=3, input_size=16), EmbeddingLoss(weight_of(name)))
    torch._dynamo.reset()
    found = torch._dynamo.explain(measure)(torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 0]))
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


def weight_of(name: str) -> float:
    return 0.5 if model_info(name).has_scores else 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["rn20", "wrn16-embed"])
def test_a_traced_network_has_the_gradients_of_the_plain_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs forward and backward as with `--compile`, without generating machine code."""
    torch.manual_seed(0)
    plain = create_model(name, num_classes=3, input_size=16)
    traced = copy.deepcopy(plain)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 0])
    losses = []
    for measure in (measured_loss(plain, EmbeddingLoss(weight_of(name))), compiled_loss(traced, 4, weight_of(name))):
        loss = measure(images, labels).loss
        loss.backward()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    ours, theirs = (torch.cat([p.grad.flatten() for p in model.parameters()]) for model in (traced, plain))
    assert (ours - theirs).norm() < 1e-2 * theirs.norm()


@pytest.mark.parametrize(("device", "mode"), [("cpu", None), ("cuda", "reduce-overhead")])
def test_only_full_batches_are_compiled_and_a_gpu_records_them(
    device: str, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str | None]] = []

    def compiled(measure: MeasuredLoss, dynamic: bool, mode: str | None) -> MeasuredLoss:
        def run(images: Tensor, labels: Tensor) -> Measured:
            seen.append((len(labels), mode))
            return measure(images, labels)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    model = create_model("rn20", num_classes=3, input_size=16)
    measure = compile_loss(measured_loss(model, EmbeddingLoss(0.0)), 4, torch.device(device))
    for count in (4, 3):
        measure(torch.randn(count, 3, 16, 16), torch.zeros(count, dtype=torch.int64))
    assert seen == [(4, mode)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["attached", "aux", "frozen"])
def test_a_network_from_elsewhere_is_traced_in_one_graph_and_trains_alike(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    plain: nn.Module
    if kind == "frozen":
        plain, shape = BlockAndHead(FeatureEmbedding(6, 3), 6, 3), (4, 6, 8, 8)
    else:
        block = "aux" if kind == "aux" else "embed"
        plain, shape = attach(Plain(), "layer1", 3, example=16, block=block, start="paper"), (4, 3, 16, 16)
    traced = copy.deepcopy(plain)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    images, labels = torch.randn(shape), torch.tensor([0, 1, 2, 0])
    measures = (measured_loss(plain, EmbeddingLoss(0.5)), compiled_loss(traced, 4))
    for model, measure in zip((plain, traced), measures, strict=True):
        torch.manual_seed(1)  # dropout
        steps = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            steps.zero_grad()
            measure(images, labels).loss.backward()
            steps.step()
    assert counters["stats"]["unique_graphs"] == 1
    assert list(traced.state_dict()) == list(plain.state_dict())
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(traced.state_dict()[name], tensor, msg=lambda text, name=name: name + text)


@pytest.mark.usefixtures("nothing_is_compiled")
def test_compiled_code_is_kept_where_only_the_user_can_put_code(cache: Path) -> None:
    compiled_loss(create_model("rn20", num_classes=3, input_size=16), batch=4)
    assert [Path(cache_dir()), Path(triton_cache_dir(0))] == [cache / "inductor", cache / "triton"]
    assert {folder.stat().st_mode & 0o777 for folder in cache.iterdir()} == {0o700}


@pytest.mark.usefixtures("nothing_is_compiled")
def test_a_cache_that_others_can_write_is_refused(cache: Path) -> None:
    (cache / "inductor").mkdir(parents=True)
    (cache / "inductor").chmod(0o777)
    with pytest.raises(TembedError, match="open to others: set XDG_CACHE_HOME or TORCHINDUCTOR_CACHE_DIR"):
        compiled_loss(create_model("rn20", num_classes=3, input_size=16), batch=4)


@pytest.mark.usefixtures("nothing_is_compiled")
def test_a_cache_that_the_user_named_is_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    compiled_loss(create_model("rn20", num_classes=3, input_size=16), batch=4)
    assert cache_dir() == str(tmp_path / "mine")
