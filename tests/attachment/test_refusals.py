"""What `attach` refuses or warns of, and the list of layers."""

import copy
import re
import warnings
from typing import Any

import pytest
import torch
from support.foreign import Odd, Plain, timm_model
from torch import Tensor, nn

from tembed.attachment.attached import logits_only
from tembed.attachment.attaching import attach
from tembed.attachment.dry_run import list_layers
from tembed.attachment.feature_maps import FeatureLayout, find_layout
from tembed.common.errors import TembedError
from tembed.loss import EmbeddingLoss


def vit(**options: Any) -> nn.Module:
    return timm_model("vit_tiny_patch16_224", **{"img_size": 64, "depth": 2, "embed_dim": 48} | options)


def test_layers_with_shapes_and_strides() -> None:
    layers = {layer.name: layer for layer in list_layers(timm_model("resnet10t"), (64, 96))}
    assert layers["layer3"].shape == (1, 256, 4, 6)
    assert layers["layer3"].stride == (16, 16)
    assert (layers["layer3"].channels, layers["layer3"].map_size) == (256, (4, 6))
    assert not {"fc", "global_pool.flatten"} & set(layers)
    head, *lines = str(list_layers(timm_model("resnet10t"), (64, 96))).splitlines()
    assert head.split() == ["layer", "output", "layout", "channels", "map", "stride"]
    (line,) = (line for line in lines if line.startswith("layer3 "))
    assert re.fullmatch(r"layer3 +1 x 256 x 4 x 6 +nchw +256 +4x6 +16", line)
    tokens = {layer.name: layer for layer in list_layers(vit())}
    assert tokens["blocks.1"].layout == FeatureLayout("tokens", 1)
    assert tokens["blocks.1"].map_size == (4, 4)
    assert tokens["patch_embed"].layout == FeatureLayout("tokens", 0)  # in front of the class token
    assert tokens["blocks.1"].stride == (16, 16)


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("parts.third", "no such submodule"),
        ("", "no such submodule"),
        ("unused", "never called"),
        ("shared", "called 2 times"),
        ("pair", "returns a tuple"),
        ("head", "not a map"),
    ],
)
def test_one_error_lists_the_candidates(at: str, why: str) -> None:
    model = Odd()
    with pytest.raises(TembedError, match=why) as caught:
        attach(model, at, 3, example=(8, 8))
    assert "parts.first (1, 4, 8, 8), parts.second (1, 5, 8, 8)" in str(caught.value)
    assert not any(module._forward_hooks for module in model.modules())


def test_an_output_whose_first_axis_is_not_the_batch_is_refused() -> None:
    """Tokens with the batch second, as torch's transformer has them by default, and windows of a Swin."""

    class BatchSecond(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 8, 4, 4)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(self.patch(x).flatten(2).permute(2, 0, 1)).mean(0))

    for example in (16, torch.randn(2, 3, 16, 16)):
        assert [layer.name for layer in list_layers(BatchSecond(), example)] == ["patch"]
        with pytest.raises(TembedError, match=r"first axis.*choose from: patch \(1, 8, 4, 4\)"):
            attach(BatchSecond(), "layer", 3, example=example)

    swin = timm_model("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(1, 1, 1, 1))
    names = {layer.name for layer in list_layers(swin)}
    assert "layers.0.blocks.0.attn" not in names
    assert "layers.0.blocks.0" in names


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(TembedError, match="did you mean 'layer1'"):
        attach(Plain(), "layer_1", 3)


@pytest.mark.parametrize(("returns", "works"), [("tuple", True), ("logits", True), ("dict", False)])
def test_what_a_network_may_return(returns: str, works: bool) -> None:
    model = Odd(returns)
    if works:
        assert attach(model, "parts.second", 3, example=8)(torch.randn(2, 3, 8, 8)).logits.shape == (2, 3)
        return
    with pytest.raises(TembedError, match="returns a dict"):
        attach(model, "parts.second", 3, example=8)


def test_the_class_count_must_be_that_of_the_network() -> None:
    with pytest.raises(TembedError, match="`num_classes` is 5"):
        attach(Plain(), "layer1", 5)


@pytest.mark.parametrize(
    "option", [{"smooth_shortcut": True}, {"norm_shortcut": True}, {"concat": True}, {"value_dim": 5}]
)
def test_a_bystander_refuses_what_changes_the_features(option: dict[str, Any]) -> None:
    model = Plain()
    with pytest.raises(TembedError, match=f"`{next(iter(option))}`.*`start`"):
        attach(model, "layer1", 3, **option)
    if "concat" in option:
        with pytest.raises(TembedError, match="writes 200 channels, and the submodule 8"):
            attach(model, "layer1", 3, start="paper", **option)
    assert type(model.layer1) is nn.Sequential
    attach(model, "layer1", 3, value_dim=8)


def test_wrong_arguments_are_named() -> None:
    for argument, value in (("start", "other"), ("layout", "hwc"), ("block", "both"), ("grid", (0, 3))):
        with pytest.raises(TembedError, match=f"`{argument}`"):
            attach(Plain(), "layer1", 3, **{argument: value})
    with pytest.raises(TembedError, match=r"does not take these options.*windows"):
        attach(Plain(), "layer1", 3, windows=3)
    with pytest.raises(TembedError, match="already has a block"):
        attach(attach(Plain(), "layer1", 3).model, "layer2", 3)


def test_the_size_of_the_images_is_asked_for_where_the_network_does_not_tell() -> None:
    fixed = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    with pytest.raises(TembedError, match="give `example`"):
        attach(copy.deepcopy(fixed), "1", 3)
    assert attach(fixed, "1", 3, example=8)(torch.randn(2, 3, 8, 8)).scores.shape == (2, 3, 6, 6)
    embedded = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(TembedError, match="does not tell the channels"):
        list_layers(embedded)


@pytest.mark.parametrize("call", [lambda name: list_layers(name), lambda name: attach(name, "layer3", 3), logits_only])
def test_a_name_is_not_a_network(call: Any) -> None:
    with pytest.raises(TembedError, match="`model` has the type str"):
        call("timm:resnet18")


@pytest.mark.parametrize("example", ["224", 0, (8, -1), (8, 8, 8), 8.0])
def test_an_example_that_is_no_size_is_named(example: Any) -> None:
    with pytest.raises(TembedError, match="`example` is"):
        list_layers(Plain(), example)


def test_a_lazy_first_layer_needs_images_and_is_not_spoilt_without_them() -> None:
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(TembedError, match="does not tell the channels"):
        attach(lazy, "1", 3, example=16)
    assert attach(lazy, "1", 3, example=torch.randn(1, 2, 16, 16))(torch.randn(2, 2, 16, 16)).logits.shape == (2, 3)


def test_tokens_of_wide_images_need_a_grid() -> None:
    model = vit(img_size=(32, 64))
    with pytest.raises(TembedError, match="give `grid`"):
        attach(model, "blocks.0", 3)
    with pytest.raises(TembedError, match="grid"):
        attach(model, "blocks.0", 3, grid=(3, 3))
    attached = attach(model, "blocks.0", 3, grid=(2, 4))
    assert attached.features(torch.randn(1, 3, 32, 64)).shape == (1, 48, 2, 4)

    flexible = vit(dynamic_img_size=True)
    attached = attach(flexible, "blocks.0", 3)
    assert attached(torch.randn(1, 3, 32, 32)).scores.shape == (1, 3, 2, 2)
    with pytest.raises(TembedError, match="32x128"):  # 2 x 8 tokens, which would also be 4 x 4
        attached(torch.randn(1, 3, 32, 128))


def test_prefix_tokens_are_the_models_own_else_the_excess_over_a_square_else_given() -> None:
    tokens = torch.empty(1, 16 + 5, 8)
    assert find_layout(tokens, (64, 64), 5) == FeatureLayout("tokens", 5)
    assert find_layout(tokens, (64, 64)) == FeatureLayout("tokens", 5)
    assert find_layout(torch.empty(1, 9, 8), (64, 64), 5) == FeatureLayout("tokens", 5), "not 3 x 3 without a prefix"
    assert find_layout(torch.empty(1, 20, 8), (64, 64), 11) == FeatureLayout("tokens", 11), "not 4 x 4 after 4"
    assert find_layout(tokens, (64, 64), prefix_tokens=12) == FeatureLayout("tokens", 12)
    assert find_layout(tokens, (64, 64), grid=(3, 6)) == FeatureLayout("tokens", 3, (3, 6))
    assert find_layout(torch.empty(1, 16, 8), (64, 64), 1) == FeatureLayout("tokens", 0)
    assert "`prefix_tokens`" in str(find_layout(torch.empty(1, 98, 8), None))
    assert "`prefix_tokens`" in str(find_layout(tokens, (64, 64), prefix_tokens=2))


def test_the_layout_is_asked_for_where_the_shape_is_ambiguous() -> None:
    assert find_layout(torch.empty(1, 8, 4, 4), (16, 16)) == FeatureLayout("nchw")
    assert find_layout(torch.empty(1, 4, 4, 8), (16, 16)) == FeatureLayout("nhwc")
    assert find_layout(torch.empty(1, 8, 4, 6), (16, 24)) == FeatureLayout("nchw")
    assert find_layout(torch.empty(1, 4, 6, 8), (16, 24)) == FeatureLayout("nhwc")
    assert find_layout(torch.empty(1, 8, 1, 1), (16, 16)) == FeatureLayout("nchw")
    assert "give `layout`" in str(find_layout(torch.empty(1, 4, 4, 4), (16, 16)))
    assert find_layout(torch.empty(1, 4, 4, 4), (16, 16), layout="nhwc") == FeatureLayout("nhwc")


def test_a_shape_is_not_ambiguous_in_a_network_whose_other_maps_have_their_channels_first() -> None:
    """ResNets have 64 channels of 64x64 in their first stage for images of 256 pixels."""

    class Permuting(Plain):
        def forward(self, x: Tensor) -> Tensor:
            x = self.layer1(self.conv1(x)).permute(0, 2, 3, 1)
            return self.fc(self.last(x).permute(0, 3, 1, 2).mean((2, 3)))

        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(8, 10)

    layers = {layer.name: layer.layout.kind for layer in list_layers(Plain(), 32)}
    assert layers["layer1"] == "nchw"  # (8, 8, 8)
    assert attach(Plain(), "layer1", 3, example=32).layout == FeatureLayout("nchw")
    assert "layer1" not in {layer.name for layer in list_layers(Permuting(), 32)}
    with pytest.raises(TembedError, match="give `layout`"):
        attach(Permuting(), "layer1", 3, example=32)


def test_a_block_that_can_change_nothing_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="do not depend"):
        attach(vit(), "blocks.1", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(vit(), "blocks.0", 3)
        attach(vit(global_pool="avg", class_token=False), "blocks.1", 3)
    silent = vit()
    nn.init.zeros_(silent.head.weight)  # a new head: its gradient is zero, but the map counts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(silent, "blocks.0", 3)


def test_deep_supervision_writes_nothing_and_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(vit(), "blocks.1", 3, block="aux")


def test_a_block_without_gradients_is_refused_when_it_is_trained() -> None:
    class FrozenBackbone(Plain):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.layer2(self.layer1(self.conv1(x)))
            return self.fc(self.avgpool(x).flatten(1))

    attached = attach(FrozenBackbone(), "layer1", 3)
    with pytest.raises(TembedError, match=r"torch\.no_grad.*use_reentrant=False"):
        attached.train()(torch.randn(2, 3, 16, 16))


def test_a_single_patch_is_warned_of_and_one_image_of_it_cannot_train() -> None:
    with pytest.warns(UserWarning, match="one patch per image"):
        attached = attach(Plain(), "avgpool", 3)
    attached.train()
    EmbeddingLoss()(attached(torch.randn(2, 3, 16, 16)), torch.tensor([0, 1])).backward()
    with pytest.raises(TembedError, match="single patch"):
        attached(torch.randn(1, 3, 16, 16))
    assert attached.eval()(torch.randn(1, 3, 16, 16)).scores.shape == (1, 3, 1, 1)


def test_a_submodule_that_is_skipped_later_is_an_error() -> None:
    class Skipping(Plain):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                return super().forward(x)
            for layer in self.layer1:  # as timm's checkpointing does
                x = layer(self.conv1(x) if isinstance(layer, nn.Conv2d) else x)
            return self.fc(self.avgpool(self.layer2(x)).flatten(1))

    attached = attach(Skipping(), "layer1", 3)
    with pytest.raises(TembedError, match="not called"):
        attached.train()(torch.randn(2, 3, 16, 16))
    assert attached.eval()(torch.randn(2, 3, 16, 16)).logits.shape == (2, 3)


def test_modes_and_generators_are_left_alone() -> None:
    model = Plain()
    model.train()
    model.layer1.eval()
    state = torch.get_rng_state()
    list_layers(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.layer1[1].training
    statistics = model.layer1[1].running_mean.clone()
    attach(model, "layer2", 3)
    assert torch.equal(model.layer1[1].running_mean, statistics)
