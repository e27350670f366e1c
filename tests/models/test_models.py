"""Every network of the registry against Table 1 and appendix A."""

from typing import Any

import numpy as np
import pytest
import torch
from support.reference_networks import DenseNet, ResNet, WideResNet
from torch import Tensor, nn
from torch.nn.functional import normalize

from tembed.common.errors import TembedError
from tembed.loss import EmbeddingLoss
from tembed.models.network import Output
from tembed.models.registry import canonical_name, create_model, list_models

# Trainable parameters as a constant and a number per class, at 32 and at 84 pixels.
PARAMETERS = {
    "rn26": ((961_488, 257), (961_488, 257)),
    "rn26-1x1": ((961_488 + 128 * 128, 257), (961_488 + 128 * 128, 257)),
    "rn26-aux": ((961_488, 386), (961_488, 386)),
    "rn26-embed": ((977_872, 516), (977_872, 516)),
    "rn26-embed-cosine": ((961_490, 515), (961_490, 515)),  # without the shortcut's kernels and the scores' bias
    "rn26-embed-local": ((980_432, 516), (980_432, 516)),
    "rn38": ((1_423_824, 257), (1_423_824, 257)),
    "rn38-embed": ((1_440_208, 516), (1_440_208, 516)),
    "wrn16": ((1_281_232, 129), (1_281_232, 129)),
    "wrn16-embed": ((1_297_872, 388), (1_297_872, 388)),
    "dn100": ((1_200_318, 535), (1_122_513, 364)),
    "dn100-embed": ((1_318_650, 1222), (1_152_438, 709)),
    "dn100-embed-cat": ((1_355_178, 1264), (1_277_031, 922)),
}
# Output channels of stages 1 to 3, the block, stage 4 (appendix A); the same at 84 pixels for RN and WRN.
WIDTHS = {
    "rn20": (64, 128, 256, 256, 256),
    "rn26": (64, 128, 128, 128, 256),
    "rn26-1x1": (64, 128, 128, 128, 256),
    "rn26-aux": (64, 128, 128, 128, 256),
    "rn26-embed": (64, 128, 128, 128, 256),
    "rn26-embed-cosine": (64, 128, 128, 128, 256),
    "rn26-embed-local": (64, 128, 128, 128, 256),
    "rn38": (64, 128, 128, 128, 256),
    "rn38-embed": (64, 128, 128, 128, 256),
    "wrn16": (32, 64, 128, 128, 128),
    "wrn16-embed": (32, 64, 128, 128, 128),
    "dn100": (108, 150, 342, 342, 534),
    "dn100-embed": (108, 150, 342, 342, 534),
    "dn100-embed-cat": (108, 150, 342, 534, 726),
}
WIDTHS_84 = {
    "dn100": (108, 150, 171, 171, 363),
    "dn100-embed": (108, 150, 171, 171, 363),
    "dn100-embed-cat": (108, 150, 171, 363, 555),
}
LABELS = {
    "RN26": "rn26",
    "RN26-aux.": "rn26-aux",
    "RN26-Ours": "rn26-embed",
    "RN38-Ours": "rn38-embed",
    "WRN16": "wrn16",
    "WRN16-Ours": "wrn16-embed",
    "DN100-Ours": "dn100-embed",
    "DN100-Ours-C": "dn100-embed-cat",
}
has_scores = {name: "-aux" in name or "-embed" in name for name in WIDTHS}


def test_the_registry_is_the_paper_and_two_of_our_own() -> None:
    assert set(list_models()) == set(WIDTHS) == {"rn20", *PARAMETERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("classes", [10, 100])
def test_parameters_equal_table_1(name: str, classes: int) -> None:
    for input_size, (constant, per_class) in zip((32, 84), PARAMETERS[name], strict=True):
        parameters = create_model(name, classes, input_size).parameters()
        assert sum(p.numel() for p in parameters if p.requires_grad) == constant + per_class * classes


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("input_size", [32, 84])
def test_maps_equal_appendix_a(name: str, input_size: int) -> None:
    model = create_model(name, 10, input_size).eval()
    dense = name.startswith("dn")
    sides = {(False, 32): (32, 16, 8), (False, 84): (42, 21, 11), (True, 32): (16, 8, 8), (True, 84): (42, 21, 10)}
    x, shapes = model.stem(torch.randn(1, 3, input_size, input_size)), []
    for stage in (model.stage1, model.stage2, model.stage3):
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    x = x if model.block is None else model.block(x)[0]
    shapes += [tuple(x.shape[1:]), tuple(model.stage4(x).shape[1:])]
    widths = WIDTHS_84.get(name, WIDTHS[name]) if input_size == 84 else WIDTHS[name]
    first, second, third = sides[dense, input_size]
    expected = zip(widths, (first, second, third, third, third), strict=True)
    assert shapes == [(width, side, side) for width, side in expected]


@pytest.mark.parametrize("name", WIDTHS)
def test_output_is_the_same_type_in_training_and_evaluation(name: str) -> None:
    model, x = create_model(name, 5), torch.randn(2, 3, 32, 32)
    for mode in (True, False):
        output = model.train(mode)(x)
        assert output.logits.shape == (2, 5)
        assert (output.scores is not None) == has_scores[name]
        if output.scores is not None:
            assert output.scores.shape == (2, 5, 8, 8)


@pytest.mark.parametrize("name", WIDTHS)
def test_trace_is_the_forward_pass_with_names(name: str) -> None:
    options = {"softmax_on_bn": True} if "embed" in name else {}
    model, x = create_model(name, 5, **options).eval(), torch.randn(2, 3, 32, 32)
    output, trace = model(x), model.trace(x)
    assert torch.equal(trace.logits, output.logits)
    torch.testing.assert_close(model.classify(trace.block_output), trace.logits)
    torch.testing.assert_close(model.features(x), trace.block_input)
    if not has_scores[name]:
        assert trace.scores is trace.softmax is trace.mixing is trace.embedding is None
        return
    assert torch.equal(trace.scores, output.scores)
    torch.testing.assert_close(trace.softmax, trace.scores.softmax(1))
    if "embed" in name:
        active = trace.scores.relu()
        torch.testing.assert_close(trace.mixing, normalize(active) if name.endswith("cosine") else active)
        torch.testing.assert_close(trace.embedding, model.block.values(trace.mixing))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDTHS)
def test_every_parameter_receives_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, 5)
    output = model(torch.randn(4, 3, 32, 32))
    EmbeddingLoss(0.5 if has_scores[name] else 0.0)(output, torch.tensor([0, 1, 2, 3])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", WIDTHS)
def test_convolutions_have_he_initialisation(name: str) -> None:
    """Standard deviation ``sqrt(2 / fan-in)`` and zero bias, in the block too."""
    torch.manual_seed(1)
    model = create_model(name, 100)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            expected = (2 / module.weight[0].numel()) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=6 / module.weight.numel() ** 0.5)
            assert module.bias is None or module.bias.eq(0).all()
        if isinstance(module, nn.BatchNorm2d):
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()


@pytest.mark.parametrize("input_size", [32, 84])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rn20", {}),
        ("rn38-embed", {"softmax_on_bn": True, "smooth_shortcut": True}),
        ("rn26-embed", {"conventions": "keras"}),
        ("wrn16-embed", {"softmax_on_bn": True, "smooth_shortcut": True}),
        ("wrn16", {"conventions": "keras"}),
        ("dn100-embed", {}),
        ("dn100-embed-cat", {"softmax_on_bn": True}),
    ],
)
def test_networks_compute_what_the_paper_describes(name: str, options: dict[str, Any], input_size: int) -> None:
    """Value by value, against an independent forward pass with the same weights and odd running statistics."""
    torch.manual_seed(0)
    model = create_model(name, 5, input_size, **options).eval().double()
    for bn in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        for tensor, low, high in ((bn.weight, 0.5, 1.5), (bn.bias, -0.5, 0.5)):
            nn.init.uniform_(tensor, low, high)
        bn.running_mean.uniform_(-0.5, 0.5)
        bn.running_var.uniform_(0.5, 2)
    first = 2 if input_size == 84 else 1
    kind, strides = {
        "rn": (ResNet, (first, 2, 2, 1)),
        "wr": (WideResNet, (first, 2, 2, 1)),
        "dn": (DenseNet, (2, 2, first, 1)),
    }[name[:2]]
    keras = options.get("conventions") == "keras"
    weights, eps = model.state_dict(), 1e-3 if keras else 1e-5
    reference = kind(weights, strides[:3] if name == "rn20" else strides, keras, eps)
    x = torch.randn(2, 3, 22, 16).double()
    block = {one: options.get(one, False) for one in ("softmax_on_bn", "smooth_shortcut")}
    with torch.no_grad():
        logits, scores = reference(x, **block)
        torch.testing.assert_close(model(x), Output(logits, scores))


@pytest.mark.parametrize("maximizer", ["bn-relu", "entropic", "perturbed"])
def test_rn20_swaps_what_follows_its_six_3x3_convolutions(maximizer: str) -> None:
    constants = {} if maximizer == "bn-relu" else {"mu": 2.5, "eta": 17, "eps": 1}
    model = create_model("rn20", maximizer=maximizer, **constants)
    kinds = {"bn-relu": "BNReLU", "entropic": "Entropic", "perturbed": "Perturbed"}
    units = [unit for stage in (model.stage1, model.stage2, model.stage3) for unit in stage]
    assert [type(unit.maximizer).__name__ for unit in units] == [kinds[maximizer]] * 6
    assert type(model.stem[1]).__name__ == "BNReLU"
    if maximizer != "bn-relu":
        assert (units[0].maximizer.mu, units[0].maximizer.eta, units[0].maximizer.eps) == (2.5, 17, 1)
    EmbeddingLoss(0)(model(torch.randn(2, 3, 32, 32)), torch.tensor([1, 2])).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("label", "name"), LABELS.items())
def test_the_labels_of_the_paper_are_aliases(label: str, name: str) -> None:
    assert canonical_name(label) == name


def test_mistakes_are_named() -> None:
    with pytest.raises(TembedError, match=r"did you mean one of these: .*rn26-embed"):
        create_model("rn26-embd")
    with pytest.raises(TembedError, match="choose from: dn100, "):
        create_model("transformer")
    with pytest.raises(TembedError, match=r"rn26 has no option 'window' .*; it takes maximizer"):
        create_model("rn26", window=3)
    with pytest.raises(TembedError, match="rn26 has no option 'mu' with the maximizer bn-relu; it takes maximizer"):
        create_model("rn26", mu=3)
    with pytest.raises(TembedError, match=r"rn26 has no option 'eps' with the maximizer one-hot; it takes .*, mu, eta"):
        create_model("rn26", maximizer="one-hot", eps=3)
    with pytest.raises(TembedError, match="wrn16 has no option 'mu'; it takes conventions"):
        create_model("wrn16", mu=3)
    with pytest.raises(TembedError, match="`num_classes` is 0; it must be at least 1"):
        create_model("rn26", num_classes=0)
    with pytest.raises(TembedError, match="`input_size` is 4; it must be at least 8"):
        create_model("rn26", input_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_autocast_trains_as_single_precision_does(name: str, layout: torch.memory_format) -> None:
    """The loss and the gradient under bfloat16 autocast against float32, on a small batch."""

    def step(autocast: bool) -> tuple[float, Tensor]:
        torch.manual_seed(0)
        model = create_model(name, 5).to(memory_format=layout)
        images = torch.randn(4, 3, 16, 16).contiguous(memory_format=layout)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = EmbeddingLoss(0.5 if has_scores[name] else 0.0)(model(images), torch.arange(4))
        loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        return loss.item(), model.head.weight.grad

    (single, g), (half, g_half) = step(False), step(True)
    assert half == pytest.approx(single, rel=0.1)
    assert (g_half - g).norm() <= 0.25 * g.norm()


def test_odd_and_rectangular_images_pass() -> None:
    for name in ("rn26-embed", "wrn16-embed", "dn100-embed-cat"):
        assert create_model(name).eval()(torch.randn(1, 3, 37, 50)).logits.shape == (1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rn26-embed", "wrn16-embed", "dn100-embed-cat"])
def test_exports(name: str) -> None:
    model, x = create_model(name).eval(), torch.randn(2, 3, 32, 32)
    exported = torch.export.export(model, (x,)).module()(x)
    torch.testing.assert_close(exported.logits, model(x).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), r"uint8 .* takes normalised floats: \(x / 255 - mean\) / std"),
        (torch.zeros(3, 32, 32), r"is one image, .* takes a batch: model\(image\[None\]\)"),
        (torch.zeros(2, 32, 32, 3), r"channels last; .* x\.permute\(0, 3, 1, 2\)"),
        (torch.zeros(2, 10), r"takes images \(N, 3, H, W\)"),
        (torch.zeros(2, 1, 32, 32), r"is grey; .* x\.expand\(-1, 3, -1, -1\)"),
        (torch.zeros(2, 4, 32, 32), r"takes three channels, \(N, 3, H, W\)"),
        (np.zeros((2, 3, 32, 32)), r"is a ndarray; .* tembed\.predict takes arrays"),
    ],
)
def test_an_input_that_no_network_takes_is_refused_with_the_fix(images: Any, message: str) -> None:
    model = create_model("rn26-embed").eval()
    for call in (model, model.trace):
        with pytest.raises(TembedError, match=message):
            call(images)
