"""Tools that expect a tensor of logits: captum's integrated gradients and Grad-CAM."""

import gc
from collections.abc import Callable

import captum.attr
import pytest
import torch
from support.foreign import Plain
from torch import Tensor, nn

from tembed.attachment.attached import logits_only
from tembed.attachment.attaching import attach
from tembed.common.errors import TembedError
from tembed.models.registry import create_model


def own() -> tuple[nn.Module, str]:
    return create_model("rn26-embed", 3), "stage2"


def attached() -> tuple[nn.Module, str]:
    return attach(Plain(), "layer1", 3, start="paper"), "model.layer1"


@pytest.mark.parametrize("build", [pytest.param(own, marks=pytest.mark.slow), attached])
def test_attributions_are_right_and_leave_nothing_behind(build: Callable[[], tuple[nn.Module, str]]) -> None:
    torch.manual_seed(0)
    model, layer = build()
    view = logits_only(model.eval())
    x = torch.randn(1, 3, 8, 8)
    assert torch.equal(view(x), model(x).logits)
    gradients, cam = captum.attr.IntegratedGradients(view), captum.attr.LayerGradCam(view, model.get_submodule(layer))

    def both() -> tuple[Tensor, Tensor]:
        return gradients.attribute(x, target=1, n_steps=2), cam.attribute(x, target=1)

    check_grad_cam(model, layer, x, cam.attribute(x, target=1))
    exact = captum.attr.IntegratedGradients(view).attribute(x, target=1, n_steps=200).sum((1, 2, 3))
    difference = (view(x) - view(torch.zeros_like(x)))[:, 1]
    torch.testing.assert_close(exact.float(), difference, rtol=0.05, atol=0.05)  # the completeness of the method

    def census() -> tuple[int, int]:
        gc.collect()
        tensors = sum(issubclass(type(each), Tensor) for each in gc.get_objects())
        return tensors, sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in view.modules())

    both()
    before = census()
    for _ in range(200):
        both()
    after = census()
    assert after[0] <= before[0]
    assert after[1] == 0


@pytest.mark.parametrize("build", ["rn26-embed", "rn26-aux", "attached"])
def test_captum_attributes_to_both_outputs_of_the_block(build: str) -> None:
    """Features and scores: the scores of -aux have no part in the logits, and so no attribution."""
    torch.manual_seed(0)
    model = attached()[0] if build == "attached" else create_model(build, 3)
    view, x = logits_only(model.eval()), torch.randn(2, 3, 8, 8)
    block = view.model.block
    assert isinstance(block, nn.Module)
    features, scores = captum.attr.LayerGradCam(view, block).attribute(x, target=1)
    kept: list[Tensor] = []
    handle = block.register_forward_hook(lambda module, inputs, output: kept.append(output[0]))
    logits = model(x).logits
    handle.remove()
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), kept[0])
    expected = (gradient.mean((2, 3), keepdim=True) * kept[0]).sum(1, keepdim=True)
    torch.testing.assert_close(features, expected)
    assert scores.abs().sum() > 0 or build == "rn26-aux"
    assert scores.abs().sum() == 0 or build != "rn26-aux"
    exact = captum.attr.LayerIntegratedGradients(view, block).attribute(x, target=1, n_steps=5)
    assert [one.shape[1] for one in exact] == [kept[0].shape[1], 3]
    assert exact[0].abs().sum() > 0
    assert exact[1].abs().sum() == 0, "from the outputs on, the logits depend on the features alone"


def check_grad_cam(model: nn.Module, layer: str, x: Tensor, found: Tensor) -> None:
    """Grad-CAM by hand: the map of the layer weighted by its mean gradients."""
    maps: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        maps.append(output)

    handle = model.get_submodule(layer).register_forward_hook(keep)
    model(x).logits[:, 1].sum().backward()
    handle.remove()
    assert maps[0].grad is not None
    expected = (maps[0] * maps[0].grad.mean((2, 3), keepdim=True)).sum(1, keepdim=True)
    torch.testing.assert_close(found, expected)
    model.zero_grad()


def test_the_view_shares_everything_with_the_network() -> None:
    model = create_model("rn26-embed", 3)
    view = logits_only(model)
    assert view.model is model
    view.eval()
    assert not model.training
    with pytest.raises(TembedError, match="`model`"):
        logits_only(print)
