"""BN-ReLU as two modules, and weights from before it was."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tembed.lab.training.state import State, gather, restore
from tembed.maximizers.bn_relu import BNReLU, current_names
from tembed.models.network import Network
from tembed.models.registry import create_model
from tembed.trained.weights_file import fill, load, shipped


def early_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names of weights files from the time when BN-ReLU was one module."""
    return {name.replace(".bn.", "."): tensor for name, tensor in tensors.items()}


def test_tools_that_replace_batch_norm_keep_the_relu() -> None:
    conv, unit = nn.Conv2d(3, 4, 1), BNReLU(4).eval()
    x = torch.randn(2, 3, 5, 5)
    expected = unit(conv(x))
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(unit)).relu) is nn.ReLU
    folded = fuse_conv_bn_eval(conv.eval(), unit.bn)
    unit.bn = nn.Identity()
    torch.testing.assert_close(unit(folded(x)), expected)


@pytest.mark.parametrize("name", ["rn26-embed", "wrn16-embed", "dn100-embed-cat"])
def test_early_names_are_read(name: str) -> None:
    torch.manual_seed(0)
    model, other = create_model(name, 5), create_model(name, 5)
    early = early_names(model.state_dict())
    assert set(early) != set(model.state_dict())
    fill(other, early)
    assert all(map(torch.equal, other.state_dict().values(), model.state_dict().values()))
    assert current_names(model.state_dict(), model).keys() == model.state_dict().keys(), "new names stay"


def test_a_plain_normalisation_keeps_its_name() -> None:
    model = create_model("wrn16-embed", 5)
    assert "block.match.norm.weight" in current_names(early_names(model.state_dict()), model)


def test_a_checkpoint_with_early_names_is_resumed() -> None:
    def trained() -> tuple[Network, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = create_model("rn20", 3)
        optimizer = torch.optim.Adam(model.parameters())
        F.cross_entropy(model(torch.randn(4, 3, 8, 8)).logits, torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = trained()
    saved = early_names({name: tensor.clone() for name, tensor in gather(State(), model, optimizer).items()})
    torch.manual_seed(1)
    other = create_model("rn20", 3)
    fresh = torch.optim.Adam(other.parameters())
    restore(State().to_json(), saved, other, fresh)
    resumed = gather(State(), other, fresh)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in gather(State(), model, optimizer).items())


@pytest.mark.parametrize("name", shipped())
def test_shipped_weights_load(name: str) -> None:
    norm = load(name).stem[1].bn
    assert (norm.running_var > 0).all()
    assert not torch.equal(norm.weight, torch.ones_like(norm.weight))
