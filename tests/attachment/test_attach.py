"""The block behind a submodule of timm's networks, of our own, and of hand-written ones."""

import copy
import gc
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.foreign import Odd, Plain, Tokens, timm_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import tembed
from tembed.attachment.attached import Attached
from tembed.attachment.attaching import attach, detach
from tembed.attachment.feature_maps import FeatureLayout
from tembed.common.errors import TembedError
from tembed.loss import EmbeddingLoss
from tembed.models.network import Output, Trace
from tembed.models.registry import create_model

CASES: dict[str, tuple[Callable[[], nn.Module], str, tuple[int, int], dict[str, Any]]] = {
    "resnet": (lambda: timm_model("resnet10t"), "layer3", (64, 64), {}),
    "resnet-wide-images": (lambda: timm_model("resnet10t"), "layer3", (64, 96), {}),
    "convnext": (
        lambda: timm_model("convnext_atto", depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)),
        "stages.2",
        (64, 64),
        {},
    ),
    "efficientnet": (lambda: timm_model("efficientnet_lite0"), "blocks.4", (64, 96), {}),
    "vit": (
        lambda: timm_model("vit_tiny_patch16_224", img_size=64, depth=3, embed_dim=48),
        "blocks.1",
        (64, 64),
        {},
    ),
    "vit-registers": (
        lambda: timm_model("vit_small_patch14_reg4_dinov2", img_size=56, depth=3, embed_dim=48, num_heads=3),
        "blocks.1",
        (56, 56),
        {},
    ),
    "vit-wide-images": (
        lambda: timm_model("vit_tiny_patch16_224", img_size=(32, 64), depth=3, embed_dim=48),
        "blocks.1",
        (32, 64),
        {"grid": (2, 4)},
    ),
    "swin": (
        lambda: timm_model(
            "swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(1, 1, 1, 1)
        ),
        "layers.1",
        (64, 64),
        {},
    ),
    "torchvision-style": (Plain, "layer1", (32, 48), {}),
    "odd": (Odd, "parts.second", (8, 10), {}),
    "rn26": (lambda: create_model("rn26", 3), "stage3", (16, 24), {}),
    "rn26-preact": (
        lambda: create_model("rn26", 3).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        "stage3.1.preact",
        (16, 16),
        {},
    ),
    "dn100": (lambda: create_model("dn100", 3), "stage2", (16, 16), {}),
}
each_case = pytest.mark.parametrize("case", CASES)


def made(case: str, **options: Any) -> tuple[Attached, nn.Module, Tensor]:
    """A network with the block, a copy of it from before, and images."""
    build, at, size, given = CASES[case]
    torch.manual_seed(0)
    model = build()
    original = copy.deepcopy(model)
    attached = attach(model, at, 3, example=size, **given, **options)
    return attached, original, torch.randn(2, 3, *size)


def logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


@pytest.mark.slow
@each_case
@pytest.mark.parametrize("training", [True, False])
def test_a_bystander_gives_the_original_logits(case: str, training: bool) -> None:
    attached, original, x = made(case)
    for model in (attached, original):
        model.train(training)
    torch.manual_seed(1)  # dropout
    expected = logits(original(x))
    torch.manual_seed(1)
    output = attached(x)
    assert isinstance(output, Output)
    assert torch.equal(output.logits, expected)
    assert output.scores is not None
    assert output.scores.shape[:2] == (2, 3)


@pytest.mark.slow
@each_case
def test_it_trains_and_every_parameter_of_the_block_has_a_gradient_by_the_second_step(case: str) -> None:
    attached, original, x = made(case)
    attached.train()
    labels, loss = torch.tensor([0, 2]), EmbeddingLoss()
    F.cross_entropy(logits(original.train()(x)), labels).backward()
    trains = {f"model.{name}" for name, p in original.named_parameters() if p.grad is not None and p.grad.any()}
    optimizer = torch.optim.AdamW(attached.parameters(), lr=1e-3)
    moved = set()
    for _ in range(2):
        optimizer.zero_grad()
        loss(attached(x), labels).backward()
        moved |= {name for name, p in attached.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        optimizer.step()
    assert trains <= moved
    assert {name for name, _ in attached.named_parameters() if name.startswith("block.")} <= moved


@pytest.mark.slow
@each_case
def test_state_dicts_round_trip_and_detach_returns_the_trained_original(case: str) -> None:
    attached, original, x = made(case)
    names = set(original.state_dict())
    assert {name.removeprefix("model.") for name in attached.state_dict() if name.startswith("model.")} == names
    with torch.no_grad():
        for parameter in attached.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    attached.eval()
    other, _, _ = made(case)
    assert other.load_state_dict(attached.state_dict()).missing_keys == []
    assert torch.equal(other.eval()(x).logits, attached(x).logits)

    model, kind = attached.model, type(original.get_submodule(attached.at))
    assert isinstance(model.get_submodule(attached.at), kind)
    assert detach(attached) is model
    assert type(model.get_submodule(attached.at)) is kind
    original.load_state_dict(model.state_dict())
    assert torch.equal(logits(model.eval()(x)), logits(original.eval()(x)))
    with pytest.raises(TembedError, match="detached"):
        attached(x)


@pytest.mark.slow
@each_case
def test_the_block_sees_the_map_and_its_output_goes_on(case: str) -> None:
    """Against the same block called by a hook, with the maps arranged by plain loops."""
    attached, original, x = made(case, start="paper")
    attached.eval(), original.eval()
    block, seen = attached.block, []

    def hook(module: nn.Module, inputs: Any, value: Tensor) -> Tensor:
        f = as_map(value, attached)
        features, scores = block(f)
        seen.append((f, scores))
        return as_output(features, value, attached)

    original.get_submodule(attached.at).register_forward_hook(hook)
    with torch.no_grad():
        expected, trace, output = logits(original(x)), attached.trace(x), attached(x)
        cut = attached.features(x)
    f, scores = seen[0]
    torch.testing.assert_close(output.logits, expected)
    torch.testing.assert_close(output.scores, scores)
    torch.testing.assert_close(trace.block_input, f)
    assert torch.equal(cut, trace.block_input)
    assert torch.equal(trace.logits, output.logits)
    assert torch.equal(trace.scores, output.scores)
    torch.testing.assert_close(trace.softmax, output.scores.softmax(1))
    torch.testing.assert_close(trace.block_output, block(f)[0])
    assert trace.mixing is not None
    torch.testing.assert_close(trace.embedding, block.values(trace.mixing))


def as_map(value: Tensor, attached: Attached) -> Tensor:
    layout = attached.layout
    if layout.kind == "nchw":
        return value
    if layout.kind == "nhwc":
        return torch.stack([value[..., channel] for channel in range(value.shape[3])], 1)
    height, width = layout.grid or (4, 4)
    rows = [value[:, layout.prefix + row * width : layout.prefix + (row + 1) * width] for row in range(height)]
    return torch.stack([row.transpose(1, 2) for row in rows], 2)


def as_output(f: Tensor, value: Tensor, attached: Attached) -> Tensor:
    layout = attached.layout
    if layout.kind == "nchw":
        return f
    if layout.kind == "nhwc":
        return torch.stack([f[:, channel] for channel in range(f.shape[1])], -1)
    tokens = [f[:, :, row, column] for row in range(f.shape[2]) for column in range(f.shape[3])]
    return torch.cat([value[:, : layout.prefix], torch.stack(tokens, 1)], 1)


def test_prefix_tokens_pass_the_block_with_their_gradient() -> None:
    layout, value = FeatureLayout("tokens", 2, (3, 4)), torch.randn(2, 14, 5, requires_grad=True)
    weights = torch.randn(2, 14, 5)
    output = layout.from_map(10 * layout.to_map(value), value)
    torch.testing.assert_close(output, torch.cat([value[:, :2], 10 * value[:, 2:]], 1))
    (output * weights).sum().backward()
    torch.testing.assert_close(value.grad, torch.cat([weights[:, :2], 10 * weights[:, 2:]], 1))


@pytest.mark.parametrize("case", ["resnet", "vit", "swin"])
def test_the_default_window_is_half_a_map_or_one_token(case: str) -> None:
    attached, _, x = made(case)
    f = attached.features(x)
    assert attached.block is not None
    window = attached.block.match.window
    assert window == (None if case == "resnet" else (1, 1))
    direct = attached.block.match.score(f) if case != "resnet" else tembed.FeatureEmbedding(f.shape[1], 3).match(f)
    assert attached.block.match(f).shape == direct.shape
    if case != "resnet":
        torch.testing.assert_close(attached.block.match(f), direct)


def test_deep_supervision_and_no_block_leave_the_logits_alone_after_training_too() -> None:
    for kind in ("aux", "none"):
        attached, original, x = made("torchvision-style", block=kind)
        attached.eval(), original.eval()
        output = attached(x)
        assert torch.equal(output.logits, original(x))
        assert (output.scores is None) == (kind == "none")
        trace = attached.trace(x)
        assert trace.embedding is None
        assert torch.equal(trace.block_output, trace.block_input)


@pytest.mark.parametrize("kind", ["embed", "aux", "none"])
def test_a_layer_that_works_in_place_behind_the_block_changes_neither_trace_nor_gradients(kind: str) -> None:
    """As in VGG: the ReLU behind the submodule overwrites its input."""

    def build(inplace: bool) -> Attached:
        torch.manual_seed(0)
        convolutions = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace)
        network = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
        return attach(network, "0", 3, example=8, start="paper", block=kind)  # type: ignore[arg-type]

    one, two, x = build(True), build(False), torch.randn(2, 3, 8, 8)
    for name, found, expected in zip(Trace._fields, one.trace(x), two.trace(x), strict=True):
        assert (found is None and expected is None) or torch.equal(found, expected), name
    for attached in (one, two):
        output = attached(x)
        loss = output.logits.sum() if kind == "none" else EmbeddingLoss()(output, torch.tensor([0, 1]))
        loss.backward()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_copies_and_pickles_are_independent() -> None:
    attached, _, x = made("torchvision-style")
    attached.eval()
    before = attached(x).logits
    for other in (copy.deepcopy(attached), pickle.loads(pickle.dumps(attached))):
        assert torch.equal(other(x).logits, before)
        with torch.no_grad():
            other.block.values.weight.add_(1)
        assert not torch.equal(other(x).logits, before)
        assert torch.equal(attached(x).logits, before)
        assert isinstance(detach(other)(x), Tensor)


def test_checkpointed_submodules_are_called_once() -> None:
    """The same gradients with and without activation checkpointing, which calls the submodule again in backward."""

    class Checkpointed(Plain):
        reentrant: bool | None = None

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.conv1(x))
            once = self.reentrant is None
            x = self.layer1(x) if once else checkpoint(self.layer1, x, use_reentrant=self.reentrant)
            return self.fc(self.avgpool(self.layer2(x)).flatten(1))

    torch.manual_seed(0)
    attached = attach(Checkpointed(), "layer1", 3)
    attached.train()
    x, labels, gradients = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 0]), []
    attached.model.layer2[2].p = 0.0
    for reentrant in (None, False):
        attached.model.reentrant = reentrant
        attached.zero_grad()
        with set_checkpoint_early_stop(False):  # call the whole submodule again
            EmbeddingLoss()(attached(x), labels).backward()
        gradients.append([p.grad.clone() for p in attached.parameters()])
        assert attached.block_call.steps is None
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)
    attached.model.reentrant = True
    with pytest.raises(TembedError, match="use_reentrant=False"):
        attached(x)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "at"), [(Plain, "layer1"), (Tokens, "mix")])
def test_compile_without_graph_breaks(build: type[nn.Module], at: str) -> None:
    torch.manual_seed(0)
    attached = attach(build(), at, 3, example=16, start="paper").eval()
    x = torch.randn(2, 3, 16, 16)
    compiled = torch.compile(attached, backend="aot_eager", fullgraph=True)
    expected, output = attached(x), compiled(x)
    torch.testing.assert_close(output.logits, expected.logits)
    torch.testing.assert_close(output.scores, expected.scores)
    EmbeddingLoss()(output, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None for p in attached.parameters())
    torch.compiler.reset()


@pytest.mark.parametrize("case", ["resnet", "vit", "swin"])
def test_autocast_and_channels_last(case: str) -> None:
    attached, _, x = made(case, start="paper")
    attached.eval()
    expected = attached(x)
    with torch.autocast("cpu", torch.bfloat16):
        output = attached(x)
    assert (output.logits.float() - expected.logits).abs().max() < 0.05 * max(1, expected.logits.abs().max())
    attached.to(memory_format=torch.channels_last)
    output = attached(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(output.logits, expected.logits, rtol=1e-4, atol=1e-4)


def test_data_parallel_training_reduces_every_parameter() -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        attached, _, x = made("torchvision-style")
        wrapped = nn.parallel.DistributedDataParallel(attached)
        for _ in range(2):  # a parameter that is left out fails in the second step
            EmbeddingLoss()(wrapped(x), torch.tensor([0, 1])).backward()
        assert all(p.grad is not None for p in attached.parameters())
    finally:
        time.sleep(0.1)  # gloo's thread takes Python's lock to free what it sent; destroying would wait for it
        distributed.destroy_process_group()


def test_the_example_of_the_documentation_runs() -> None:
    timm_model("resnet10t")  # makes timm importable here
    text = (Path(tembed.__file__).parents[2] / "docs" / "attach.md").read_text("utf-8")
    example = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(example, "docs/attach.md", "exec"), names)
    assert names["output"].scores.shape == (2, 10, 14, 14)
    assert type(names["model"].layer3) is nn.Sequential


@pytest.mark.slow
def test_nothing_is_left_after_a_hundred_rounds() -> None:
    model, x = Plain(), torch.randn(2, 3, 16, 16)
    names = list(model.state_dict())

    def one_round() -> None:
        attached = attach(model, "layer1", 3, example=16)
        EmbeddingLoss()(attached(x), torch.tensor([0, 1])).backward()
        attached.trace(x), attached.features(x)
        detach(attached)
        model.zero_grad()

    def census() -> tuple[int, int, int]:
        gc.collect()
        alive = [each for each in gc.get_objects() if issubclass(type(each), Tensor | Attached)]
        hooks = sum(len(module._forward_hooks) for module in model.modules())
        return len(alive), hooks, len(nn.Sequential.__subclasses__())

    one_round()
    before = census()
    for _ in range(100):
        one_round()
    after = census()
    assert all(now <= then for now, then in zip(after, before, strict=True)), (after, before)
    assert after[1] == 0
    assert list(model.state_dict()) == names
    assert vars(model.layer1).keys() == vars(nn.Sequential()).keys()
