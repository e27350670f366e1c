"""Maps of explanations equal closed forms, slow loops and captum's."""

import captum.attr
import numpy as np
import pytest
import torch
from support.foreign import Plain
from torch import Tensor

from tembed.attachment.attached import logits_only
from tembed.attachment.attaching import attach
from tembed.common.errors import TembedError
from tembed.lab.analysis.attributions import (
    ATTRIBUTIONS,
    NULLS,
    available,
    best_attribution,
    class_activations,
    integrated_from_block,
    integrated_gradients,
    occlusion,
)
from tembed.lab.analysis.heat_map import enlarged, smooth_map
from tembed.models.network import Network
from tembed.models.registry import create_model


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=["rn26-embed", "rn26"])
def network(request: pytest.FixtureRequest, x: Tensor) -> Network:
    torch.manual_seed(0)
    model = create_model(request.param, 4)
    model.train()(x)  # statistics that are not those of a fresh network
    return model.eval()


CLASSES = torch.tensor([1, 3, 0])


def test_the_mean_of_a_class_activation_map_plus_the_bias_is_the_logit(network: Network, x: Tensor) -> None:
    found = class_activations(network, x).mean((2, 3)) + network.head.bias
    torch.testing.assert_close(found, network(x).logits)


def test_integrated_gradients_sum_to_the_difference_of_the_logits(network: Network, x: Tensor) -> None:
    zero = network(torch.zeros_like(x)).logits
    expected = (network(x).logits - zero).gather(1, CLASSES[:, None])[:, 0].detach().numpy()
    found = integrated_gradients(network, x, CLASSES, steps=40)
    np.testing.assert_allclose(found.sum((1, 2)), expected, rtol=0.1, atol=0.1)
    exact = captum.attr.IntegratedGradients(logits_only(network)).attribute(
        x, target=CLASSES, n_steps=7, method="riemann_middle"
    )
    found = integrated_gradients(network, x, CLASSES, steps=7)
    np.testing.assert_allclose(found, exact.sum(1).detach(), rtol=1e-3, atol=1e-4)


def test_integrated_gradients_from_the_block_on_are_complete(network: Network, x: Tensor) -> None:
    """The map is enlarged, so that its mean, not its sum, is compared; the interpolation keeps it roughly."""
    f = network.trace(x).block_output
    difference = (network.classify(f) - network.classify(torch.zeros_like(f))).gather(1, CLASSES[:, None])[:, 0]
    found = integrated_from_block(network, x, CLASSES, steps=20)
    cells = f.shape[2] * f.shape[3]
    np.testing.assert_allclose(found.mean((1, 2)) * cells, difference.detach(), rtol=0.2, atol=0.05)


def test_occlusion_is_the_mean_drop_over_the_squares_that_cover_a_pixel(network: Network, x: Tensor) -> None:
    found = occlusion(network, x, CLASSES, squares=4)
    whole = network(x).logits
    total, count = np.zeros(x[:, 0].shape), np.zeros(x[:, 0].shape)
    for image, label in enumerate(CLASSES):
        for top in (0, 4, 8, 12):
            for left in (0, 4, 8, 12):
                grey = x[image].clone()
                grey[:, top : top + 4, left : left + 4] = 0
                drop = whole[image, label] - network(grey[None]).logits[0, label]
                total[image, top : top + 4, left : left + 4] += drop.item()
                count[image, top : top + 4, left : left + 4] += 1
    np.testing.assert_allclose(found, total / count, atol=1e-4)
    assert ATTRIBUTIONS["occlusion"](network, x, CLASSES).shape == (3, 16, 16)


def test_gradient_maps_are_those_of_captum(network: Network, x: Tensor) -> None:
    view = logits_only(network)
    exact = captum.attr.LayerGradCam(view, network.stage4).attribute(x, target=CLASSES, relu_attributions=True)
    expected = enlarged(exact[:, 0].detach().numpy(), (1, 1), (16, 16))
    np.testing.assert_allclose(ATTRIBUTIONS["grad-cam"](network, x, CLASSES), expected, atol=1e-5)
    product = captum.attr.InputXGradient(view).attribute(x.clone().requires_grad_(), target=CLASSES).sum(1)
    found = ATTRIBUTIONS["input x gradient"](network, x, CLASSES)
    np.testing.assert_allclose(found, product.detach(), rtol=1e-3, atol=1e-5)


def test_the_halfway_gradient_is_one_smoothed_step_of_integrated_gradients(x: Tensor) -> None:
    torch.manual_seed(0)
    network = create_model("rn26-embed", 4).eval()
    oblong = torch.cat([x, x[..., :4]], -1)  # 16 rows and 20 columns
    step = integrated_gradients(network, oblong, CLASSES, steps=1)
    found = ATTRIBUTIONS["halfway gradient"](network, oblong, CLASSES)
    weights = []
    for side in (16, 20):
        apart = np.arange(side)[:, None] - np.arange(side)
        weights.append(np.exp(-(apart**2) / (2 * (0.05 * side) ** 2)))
    down, across = (one / one.sum(1).max() for one in weights)
    expected = 320 * np.einsum("ij,njk,lk->nil", down, step, across)
    inside = (slice(None), slice(4, -4), slice(4, -4))  # the Gaussian does not reach the border from here
    np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-2, atol=1e-2 * np.abs(expected).max())
    product = ATTRIBUTIONS["softmax"](network, oblong, CLASSES) * np.maximum(found, 0)
    np.testing.assert_allclose(ATTRIBUTIONS["softmax x gradient"](network, oblong, CLASSES), product, rtol=1e-5)


def test_maps_of_the_patches_have_their_values_at_the_centres(x: Tensor) -> None:
    torch.manual_seed(0)
    network = create_model("rn26-embed", 4).eval()
    torch.nn.init.normal_(network.block.match.score.weight, std=0.003)  # probabilities that are not 0 or 1
    trace = network.trace(x)
    assert trace.scores is not None
    assert trace.mixing is not None
    p = trace.scores.softmax(1)
    values = {"score": trace.scores, "softmax": p, "log-odds": p.log() - (1 - p).log(), "mixing": trace.mixing}
    for name, expected in values.items():
        found = ATTRIBUTIONS[name](network, x, CLASSES)
        for image, label in enumerate(CLASSES):
            one = smooth_map(expected[image, label].detach().numpy(), (2, 2), (0, 0, 16, 16), (16, 16))
            np.testing.assert_allclose(found[image], one, atol=2e-4)
    cam = ATTRIBUTIONS["cam"](network, x, CLASSES)
    product = ATTRIBUTIONS["softmax"](network, x, CLASSES) * np.maximum(cam, 0)
    np.testing.assert_allclose(ATTRIBUTIONS["softmax x cam"](network, x, CLASSES), product, atol=1e-6)


def test_null_explanations_see_no_network(x: Tensor) -> None:
    first, second = create_model("rn20", 4), create_model("rn26-embed", 4)
    for name in NULLS:
        one, other = ATTRIBUTIONS[name](first, x, CLASSES), ATTRIBUTIONS[name](second, x, CLASSES.flip(0))
        np.testing.assert_array_equal(one, other)
        assert ATTRIBUTIONS[name].explains == "nothing"
    centre = ATTRIBUTIONS["centre"](first, x, CLASSES)[0]
    assert centre[7:9, 7:9].min() > centre[:2].max()
    half = torch.zeros(1, 3, 16, 16)
    half[..., 8:] = 1
    edges = ATTRIBUTIONS["edges"](first, half, CLASSES[:1])[0]
    assert set(np.flatnonzero(edges.sum(0)).tolist()) == {7, 8}


def test_a_network_has_the_maps_that_it_can_make(x: Tensor) -> None:
    embed, aux, plain = (create_model(name, 4) for name in ("rn26-embed", "rn26-aux", "rn26"))
    names = {one.name for one in available(embed)}
    assert names == set(ATTRIBUTIONS)
    assert names - {one.name for one in available(aux)} == {"mixing"}
    lacking = {"softmax", "score", "log-odds", "mixing", "softmax x cam", "softmax x gradient"}
    assert names - {one.name for one in available(plain)} == lacking
    attached = attach(Plain(), "layer1", 3, start="paper")
    assert not {"cam", "grad-cam", "ig at block"} & {one.name for one in available(attached)}
    assert [best_attribution(one).name for one in (embed, aux, plain, attached)] == [
        *("softmax x gradient", "softmax x gradient", "halfway gradient", "softmax x gradient")
    ]
    with pytest.raises(TembedError, match="has no softmax map: it has no scores"):
        ATTRIBUTIONS["softmax"](plain, x, CLASSES)
