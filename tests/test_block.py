"""The block (§3.3) with every option against a plain loop over patches."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tembed.block import DeepSupervision, FeatureEmbedding, PatchScores, ShortcutOnly, half_window, patch_mean
from tembed.common.errors import TembedError
from tembed.maximizers.entropic import Entropic


def looped_patch_mean(f: Tensor, window: tuple[int, int]) -> Tensor:
    """Border patches average only the features inside the map. Even windows have one more row and column at the end."""
    out = torch.zeros_like(f)
    (kh, kw), (height, width) = window, f.shape[2:]
    for i, j in itertools.product(range(height), range(width)):
        rows = [r for r in range(i - (kh - 1) // 2, i + kh // 2 + 1) if 0 <= r < height]
        columns = [c for c in range(j - (kw - 1) // 2, j + kw // 2 + 1) if 0 <= c < width]
        out[:, :, i, j] = sum(f[:, :, r, c] for r in rows for c in columns) / (len(rows) * len(columns))
    return out


MAPS = [(8, 8), (11, 11), (10, 10), (1, 1), (2, 2), (3, 1), (7, 4), (5, 9)]


@pytest.mark.parametrize("size", MAPS)
def test_patches_average_the_features_inside_the_map(size: tuple[int, int]) -> None:
    f = torch.randn(2, 3, *size, dtype=torch.double)
    for window in (half_window(*size), (2, 2), (3, 3), (1, 4), (9, 9)):
        torch.testing.assert_close(patch_mean(f, window), looped_patch_mean(f, window))


def test_the_window_is_half_the_map() -> None:
    assert half_window(8, 8) == (4, 4)  # CIFAR
    assert half_window(11, 11) == half_window(10, 10) == (5, 5)  # Mini-ImageNet
    assert half_window(1, 3) == (1, 1)
    assert (half_window(6, 10), half_window(11, 4)) == ((3, 5), (5, 2))  # rows first


@pytest.mark.parametrize("size", MAPS)
@pytest.mark.parametrize("training", [True, False])
def test_equals_the_formulas_pixel_by_pixel(size: tuple[int, int], training: bool) -> None:
    block = FeatureEmbedding(6, 4).double().train(training)
    nn.init.uniform_(block.maximizer.bn.weight, 0.5, 1.5)
    nn.init.normal_(block.maximizer.bn.bias)
    f = torch.randn(3, 6, *size, dtype=torch.double)
    x_g = looped_patch_mean(f, half_window(*size))
    alpha, beta = block.match.score.weight[:, :, 0, 0], block.match.score.bias
    a = torch.einsum("kd,ndhw->nkhw", alpha, x_g) + beta[:, None, None]
    mean, var = a.mean((0, 2, 3)), a.var((0, 2, 3), unbiased=False)
    if not training:
        mean, var = block.maximizer.bn.running_mean.clone(), block.maximizer.bn.running_var.clone()
    scale = block.maximizer.bn.weight / (var + block.maximizer.bn.eps).sqrt()
    p = ((a - mean[:, None, None]) * scale[:, None, None] + block.maximizer.bn.bias[:, None, None]).clamp(min=0)
    nu = block.values.weight[:, :, 0, 0]
    embedding = torch.einsum("dk,nkhw->ndhw", nu, p)
    shortcut = torch.einsum("ed,ndhw->nehw", block.shortcut.weight[:, :, 0, 0], f)
    features, scores = block(f)
    torch.testing.assert_close(scores, a)
    torch.testing.assert_close(features, shortcut + embedding)


def test_concatenation_keeps_the_input_and_appends_192_values() -> None:
    block = FeatureEmbedding(12, 5, concat=True)
    f = torch.randn(2, 12, 8, 8)
    steps = block.steps(f)
    assert block.out_channels == 12 + 192 == steps.features.shape[1]
    assert torch.equal(steps.features[:, :12], f)
    assert torch.equal(steps.features[:, 12:], steps.embedding)
    assert block.shortcut is None


def test_norm_before_pool_normalises_only_the_score_branch() -> None:
    block = FeatureEmbedding(6, 4, norm_before_pool=True).double()
    f = 5 * torch.randn(8, 6, 8, 8, dtype=torch.double) + 3
    normalised = (f - f.mean((0, 2, 3), keepdim=True)) / (f.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
    steps = block.steps(f)
    torch.testing.assert_close(steps.scores, block.match.score(looped_patch_mean(normalised, (4, 4))))
    torch.testing.assert_close(steps.features - steps.embedding, block.shortcut(f))


def test_softmax_on_bn_takes_the_scores_that_feed_the_relu() -> None:
    block = FeatureEmbedding(6, 4, softmax_on_bn=True)
    f = torch.randn(5, 6, 8, 8)
    steps = block.steps(f)
    assert torch.equal(steps.mixing, steps.scores.relu())
    torch.testing.assert_close(steps.scores.mean((0, 2, 3)), torch.zeros(4), atol=1e-5, rtol=0)
    assert block.maximizer.bn.num_batches_tracked == 1  # one normalisation, not two


@pytest.mark.parametrize("softmax_on_bn", [False, True])
@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_hooks_on_every_module_of_the_block_fire(kind: str, softmax_on_bn: bool) -> None:
    block = FeatureEmbedding(6, 4, softmax_on_bn=softmax_on_bn)
    fired: list[str] = []
    for name, module in block.named_modules():
        getattr(module, f"register_{kind}")(lambda *_, name=name: fired.append(name))
    features, scores = block(torch.randn(2, 6, 4, 4, requires_grad=True))
    (features.sum() + scores.sum()).backward()
    assert sorted(fired) == sorted(name for name, _ in block.named_modules())


@pytest.mark.parametrize("kind", [FeatureEmbedding, DeepSupervision, PatchScores])
@pytest.mark.parametrize(("channels", "classes", "name"), [(0, 4, "channels"), (6, 0, "num_classes")])
def test_sizes_below_one_are_refused(kind: type, channels: int, classes: int, name: str) -> None:
    with pytest.raises(TembedError, match=f"`{name}` is 0; it must be at least 1"):
        kind(channels, classes)


def test_deep_supervision_leaves_the_features_alone() -> None:
    block, f = DeepSupervision(6, 4), torch.randn(2, 6, 5, 8)
    features, scores = block(f)
    assert torch.equal(features, f)
    torch.testing.assert_close(scores, block.match.score(looped_patch_mean(f, (2, 4))))
    assert torch.equal(block.steps(f).features, f)


def test_one_channel_and_one_class_are_enough() -> None:
    block = FeatureEmbedding(1, 1, value_dim=1)
    features, scores = block(torch.randn(2, 1, 3, 3))
    assert features.shape == scores.shape == (2, 1, 3, 3)


def test_smooth_shortcut_pools_two_by_two() -> None:
    block = FeatureEmbedding(6, 4, smooth_shortcut=True)
    f = torch.randn(2, 6, 5, 8)
    steps = block.steps(f)
    expected = block.shortcut(looped_patch_mean(f, (2, 2)))
    torch.testing.assert_close(steps.features - steps.embedding, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("smooth", [False, True])
def test_norm_shortcut_normalises_each_channel_before_the_shortcut_only(smooth: bool) -> None:
    block = FeatureEmbedding(6, 4, norm_shortcut=True, smooth_shortcut=smooth)
    f = 3 + 5 * torch.randn(2, 6, 5, 8)
    steps = block.steps(f)
    mean, variance = f.mean((0, 2, 3), keepdim=True), f.var((0, 2, 3), unbiased=False, keepdim=True)
    normalised = (f - mean) / (variance + 1e-5).sqrt()
    expected = block.shortcut(looped_patch_mean(normalised, (2, 2)) if smooth else normalised)
    torch.testing.assert_close(steps.features - steps.embedding, expected, atol=1e-4, rtol=1e-4)
    plain = FeatureEmbedding(6, 4)
    plain.load_state_dict(block.state_dict(), strict=False)
    torch.testing.assert_close(plain.steps(f).scores, steps.scores)


def test_the_cosine_form_is_cosines_pixel_by_pixel() -> None:
    block = FeatureEmbedding(6, 4, form="cosine", maximizer="entropic").eval()
    assert (block.match.score.scale.item(), block.values.scale.item()) == (3.0, 1.0)
    with torch.no_grad():
        block.match.score.scale.fill_(2.0)
        block.values.scale.fill_(1.5)
    f = torch.randn(2, 6, 4, 4)
    steps, mean = block.steps(f), looped_patch_mean(f, (2, 2))
    templates, mixers = (module.weight[:, :, 0, 0] for module in (block.match.score, block.values))
    for n, row, column in itertools.product(range(2), range(4), range(4)):
        patch, at = mean[n, :, row, column], (n, slice(None), row, column)
        scores = torch.stack([2 * patch @ t / (patch.norm() * t.norm()) for t in templates])
        torch.testing.assert_close(steps.scores[at], scores)
        weights = block.maximizer(scores[None, :, None, None])[0, :, 0, 0]
        written = torch.stack([1.5 * weights @ m / (weights.norm() * m.norm()) for m in mixers])
        torch.testing.assert_close(steps.features[at], f[at] + written)
        torch.testing.assert_close(steps.mixing[at] @ block.class_vectors(), written)


def test_the_class_vectors_of_both_forms_make_the_embedding() -> None:
    for form in ("linear", "cosine"):
        block = FeatureEmbedding(6, 4, form=form)
        steps = block.steps(torch.randn(3, 6, 4, 4))
        mixed = torch.einsum("nchw,cd->ndhw", steps.mixing, block.class_vectors())
        torch.testing.assert_close(steps.embedding, mixed)


@pytest.mark.parametrize(
    "options", [{"concat": True}, {"value_dim": 5}, {"bias": True}, {"smooth_shortcut": True}, {"norm_shortcut": True}]
)
def test_the_cosine_form_refuses_what_its_shortcut_has_no_place_for(options: dict[str, Any]) -> None:
    with pytest.raises(TembedError, match="'cosine' adds f' to its input: leave out"):
        FeatureEmbedding(6, 4, form="cosine", **options)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(TembedError, match="`form` is 'sine'; it must be 'linear' or 'cosine'"):
        FeatureEmbedding(6, 4, form="sine")


@pytest.mark.parametrize("smooth", [False, True])
def test_the_1x1_control_is_the_shortcut_of_the_block(smooth: bool) -> None:
    block, control = FeatureEmbedding(6, 4, smooth_shortcut=smooth), ShortcutOnly(6, 4, smooth_shortcut=smooth)
    control.shortcut.load_state_dict(block.shortcut.state_dict())
    f = torch.randn(2, 6, 5, 8)
    steps = block.steps(f)
    features, scores = control(f)
    assert scores is None
    torch.testing.assert_close(features, steps.features - steps.embedding, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("maximizer", ["bn-relu", "entropic", "perturbed", "perturbed-sampled", "one-hot"])
def test_mixing_weights_come_from_any_maximizer(maximizer: str) -> None:
    block = FeatureEmbedding(6, 4, maximizer=maximizer)
    steps = block.steps(torch.randn(2, 6, 8, 8))
    assert steps.mixing.min() >= 0
    torch.testing.assert_close(steps.embedding, block.values(steps.mixing))
    features, _ = FeatureEmbedding(6, 4, maximizer=Entropic(mu=0.0, eta=1.0))(torch.randn(2, 6, 8, 8))
    assert features.shape == (2, 6, 8, 8)


def test_window_and_value_size_can_be_given() -> None:
    block = FeatureEmbedding(6, 4, window=(3, 5), value_dim=9, bias=True)
    f = torch.randn(2, 6, 8, 8)
    steps = block.steps(f)
    assert steps.features.shape == (2, 9, 8, 8)
    torch.testing.assert_close(steps.scores, block.match.score(looped_patch_mean(f, (3, 5))), atol=1e-5, rtol=1e-4)
    assert block.values.bias is not None
    assert block.shortcut.bias is not None


def test_a_patch_that_matches_one_class_gets_its_class_vector() -> None:
    """§3.3: a patch that matches only class k gets ``nu_k``, scaled."""
    block = FeatureEmbedding(6, 4, maximizer="one-hot")
    with torch.no_grad():
        block.match.score.weight.zero_()
        block.match.score.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 0.0]))
    steps = block.steps(torch.randn(1, 6, 4, 4))
    expected = 17 * block.values.weight[:, 1, 0, 0]
    torch.testing.assert_close(steps.embedding, expected[None, :, None, None].expand(1, 6, 4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concat": True, "smooth_shortcut": True}, "leave one of them out"),
        ({"concat": True, "norm_shortcut": True}, "`norm_shortcut` comes before.*leave one of them out"),
        ({"softmax_on_bn": True, "maximizer": "entropic"}, "it needs the maximizer 'bn-relu'"),
        ({"value_dim": 0}, "`value_dim` is 0; it must be at least 1"),
        ({"window": 0}, "window"),
        ({"window": (2, 2, 2)}, "window"),
        ({"maximizer": "argmax"}, "unknown maximizer"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(TembedError, match=message):
        FeatureEmbedding(6, 4, **options)


@pytest.mark.parametrize("options", [{}, {"concat": True}, {"smooth_shortcut": True}, {"maximizer": "perturbed"}])
def test_exports_with_a_plain_average_pool(options: dict) -> None:
    block = FeatureEmbedding(6, 4, **options).eval()
    f = torch.randn(2, 6, 7, 8)
    program = torch.export.export(block, (f,))
    assert "adaptive" not in str(program.graph)
    for ours, exported in zip(block(f), program.module()(f), strict=True):
        torch.testing.assert_close(exported, ours, atol=1e-4, rtol=1e-4)


def test_a_normalised_shortcut_uses_its_running_statistics_in_eval() -> None:
    torch.manual_seed(0)
    block = FeatureEmbedding(6, 3, norm_shortcut=True).eval()
    norm = block.shortcut_norm
    assert norm is not None
    f = torch.randn(2, 6, 4, 4)
    before, _ = block(f)
    with torch.no_grad():
        norm.running_mean += 1.0
    after, _ = block(f)
    assert not torch.allclose(after, before, atol=1e-3)
