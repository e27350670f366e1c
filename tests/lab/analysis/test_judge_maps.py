"""Measures of maps have known values on planted networks and hand-made maps; untrained networks score at chance."""

from typing import Any

import numpy as np
import pytest
import torch
from support.features import made_description
from torch import Tensor, nn

from tembed.lab.analysis.attributions import ATTRIBUTIONS, Attribution
from tembed.lab.analysis.judge_maps import (
    cell_correctness,
    cell_drops,
    cell_sums,
    deletion_and_insertion,
    draw_grids,
    energy,
    grid_shares,
    locality,
    milliseconds,
    pointing,
    randomised,
    similarity,
    with_fixed_window,
)
from tembed.lab.analysis.judge_parts import Answers, Scenes, contrastivity, contrasts
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.parts import CLASSES, draw, generate
from tembed.lab.training.recipe import Recipe
from tembed.models.network import Network, Output
from tembed.models.registry import create_model

ONE = torch.tensor([0, 0])


class Corner(nn.Module):
    """Its first logit is half of the sum of a square at the top left; the second one is 0."""

    block = None

    def __init__(self, side: int = 4):
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Output:
        logit = x[:, :, : self.side, : self.side].sum((1, 2, 3)) / 2
        return Output(torch.stack([logit, torch.zeros_like(logit)], 1), None)


def made(function: Any) -> Attribution:
    return Attribution("made", "answer", frozenset(), function)


def test_pointing_and_energy() -> None:
    objects = np.zeros((4, 4, 4), bool)
    objects[:, :2, :2] = True
    inside, outside, even, nothing = (np.zeros((4, 4), np.float32) for _ in range(4))
    inside[0, 0], outside[3, 3], even[...] = 2, 1, 1
    outside[0, 0] = -5
    maps = np.stack([inside, outside, even, nothing - 1])
    np.testing.assert_array_equal(pointing(maps, objects), [1, 0, 0.25, 0.25])
    np.testing.assert_array_equal(energy(maps, objects), [1, 0, 0.25, 0.25])


def test_a_map_of_the_pixels_that_matter_deletes_first_and_inserts_first() -> None:
    network: Any = Corner(2)
    x = torch.full((2, 3, 16, 16), -1.0)
    x[:, :, :2, :2] = 1
    right = np.zeros((2, 16, 16), np.float32)
    right[:, :2, :2] = 1
    deletion, insertion = deletion_and_insertion(right, network, x, ONE)
    worse, later = deletion_and_insertion(-right, network, x, ONE)
    assert (deletion < worse - 0.3).all()
    assert (insertion > later + 0.3).all()
    for one in (deletion, insertion, worse, later):
        assert ((one >= 0) & (one <= 1)).all()


def test_the_sums_of_cells_and_the_drops_without_them() -> None:
    network: Any = Corner()
    x = torch.rand(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    drops = cell_drops(network, x, ONE)
    for row in range(4):
        for column in range(4):
            cell = x[:, :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            seen = cell[:, :, : max(0, 4 - 2 * row), : max(0, 4 - 3 * column)]
            expected = seen.sum((1, 2, 3)) / 2
            np.testing.assert_allclose(drops[:, 4 * row + column], expected, atol=1e-5)
    np.testing.assert_allclose(cell_sums(x.sum(1).numpy())[:, 5], x[:, :, 2:4, 3:6].sum((1, 2, 3)), rtol=1e-5)
    exact = np.zeros((2, 8, 12), np.float32)
    exact[:, :4, :4] = x[:, :, :4, :4].sum(1)
    np.testing.assert_allclose(cell_correctness(exact, drops), 1)
    np.testing.assert_allclose(cell_correctness(-exact, drops), -1)
    np.testing.assert_array_equal(cell_correctness(np.ones_like(exact), drops), 0)


def test_a_map_that_finds_its_quarter_of_a_grid() -> None:
    """Each image shows its class by its brightness, and the planted maps know that."""
    labels = torch.arange(6).repeat(2)
    x = labels[:, None, None, None] + torch.zeros(12, 3, 4, 6)
    grids = draw_grids(labels, 3)
    assert all(len(labels[four].unique()) == 4 for four in grids)
    right = made(lambda network, x, classes: (x[:, 0] == classes[:, None, None]).float().numpy())
    network: Any = Corner()
    assert (grid_shares(right, network, x, labels, grids) == 1).all()
    wrong = made(lambda network, x, classes: (x[:, 0] != classes[:, None, None]).float().numpy())
    assert (grid_shares(wrong, network, x, labels, grids) == 0).all()
    assert (grid_shares(ATTRIBUTIONS["area"], network, x, labels, grids) == 0.25).all()


def test_the_share_of_a_value_that_comes_from_near() -> None:
    x = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(6, dtype=torch.int64)
    network: Any = Corner()
    pixel = made(lambda network, x, classes: x[:, 0].numpy())
    whole = made(lambda network, x, classes: x[:, 0].mean((1, 2), keepdim=True).expand(-1, 16, 16).numpy())
    assert locality(pixel, network, x, labels, range(3)) == 1
    assert locality(whole, network, x, labels, range(3)) < 0.5


@pytest.fixture(scope="module")
def network() -> Network:
    """A network for images of 16 pixels, with random weights."""
    torch.manual_seed(0)
    model = create_model("rn26-embed", 10, 16)
    model.description = made_description(Recipe.fast("rn26-embed", "parts").complete(), CLASSES, 16)
    return model.eval()


def test_the_vote_of_the_patches_ignores_the_top_of_the_network(network: Network) -> None:
    images = generate(60, size=16)
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3])
    base = untrained(network, images, seed=5)
    others = randomised(base, images)
    found = {
        (what, name): similarity(ATTRIBUTIONS[name](base, x, labels), ATTRIBUTIONS[name](other, x, labels)).mean()
        for what, other in others.items()
        for name in ("softmax", "cam")
    }
    assert found["sanity top", "softmax"] == pytest.approx(1)
    for one in (("sanity top", "cam"), ("sanity all", "softmax"), ("sanity all", "cam")):
        assert abs(found[one]) < 0.6, one
    assert others["sanity top"].training is False
    assert milliseconds(ATTRIBUTIONS["cam"], base, x, labels) > 0


def test_patches_keep_their_size_on_a_grid(network: Network) -> None:
    x = torch.randn(1, 3, 16, 16)
    wide = with_fixed_window(network, x)
    assert wide.block.match.window == (2, 2)  # type: ignore[union-attr]
    assert network.block.match.window is None  # type: ignore[union-attr]
    torch.testing.assert_close(wide(x).scores, network(x).scores)


def test_an_untrained_network_scores_at_chance(network: Network) -> None:
    """Its classes are exchangeable, so that no map can prefer the parts or the image of the right one."""
    scenes = Scenes.draw(draw(np.arange(60), size=16), dataset("parts"))
    images, sensitive, shares = scenes.images, [], []
    for seed in range(3):
        one = untrained(network, images, seed)
        x = (torch.from_numpy(images.pixels()).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
        pairs = contrasts(Answers(scenes, np.zeros((len(scenes.subsets), 10), np.float32)), seed)
        seen = x[[pair.image for pair in pairs]]
        explain = ATTRIBUTIONS["softmax x gradient"]
        first, second = (
            explain(one, seen, torch.tensor([getattr(pair, which) for pair in pairs])) for which in ("first", "second")
        )
        sensitive.append(contrastivity(first, second, pairs, scenes).mean())
        grids = draw_grids(images.labels, 4, seed)
        shares.append(grid_shares(explain, with_fixed_window(one, x), x, images.labels, grids).mean())
    assert np.mean(sensitive) == pytest.approx(0.5, abs=0.12)
    assert np.mean(shares) == pytest.approx(0.25, abs=0.08)
