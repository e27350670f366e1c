"""The registry of networks: what it knows about each, and what users register."""

import sys
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tembed import maximizers
from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.loss import EmbeddingLoss
from tembed.models.network import Network
from tembed.models.parameter_counts import parameter_table, stages
from tembed.models.registry import canonical_name, create_model, list_models, model_info, register_model
from tembed.models.resnet import resnet
from tembed.paper import PARAMETERS, STAGES


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for name in ("tembed.models.registry", "tembed.maximizers.lookup"):
        registry = sys.modules[name]
        monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_the_record_of_a_network_agrees_with_the_network(name: str) -> None:
    info, block = model_info(name), create_model(name).block
    assert info.name == name
    assert info.has_block == isinstance(block, FeatureEmbedding)
    assert info.has_scores == isinstance(block, FeatureEmbedding | DeepSupervision)
    for option, value in {"softmax_on_bn": True, "smooth_shortcut": True, "norm_shortcut": True, "window": 3}.items():
        if option in info.options:
            create_model(name, **{option: value})
        else:
            with pytest.raises(TembedError, match="has no option"):
                create_model(name, **{option: value})


def test_dn100_embed_keeps_its_plain_shortcut_on_every_dataset() -> None:
    """The 2x2 pool of the shortcut is for RN and WRN only (appendix A)."""
    assert {name: model_info(name).defaults for name in list_models() if model_info(name).defaults} == {
        "dn100-embed": {"smooth_shortcut": False}
    }


def test_labels_are_those_of_table_1() -> None:
    assert [model_info(name).label for name in PARAMETERS] == [
        *("RN26", "RN26-aux.", "RN26-Ours", "RN38", "RN38-Ours"),
        *("WRN16", "WRN16-Ours", "DN100", "DN100-Ours", "DN100-Ours-C"),
    ]
    assert model_info("rn20").label is None


@pytest.mark.parametrize(("side", "name"), [(side, name) for side, table in STAGES.items() for name in table])
def test_the_stages_are_those_of_appendix_a(side: int, name: str) -> None:
    assert stages(name, side) == STAGES[side][name]


def test_every_row_of_table_1_is_counted() -> None:
    rows = parameter_table()
    assert [row.name for row in rows] == list(PARAMETERS)
    assert all(row.agrees for row in rows)


@pytest.mark.parametrize(
    ("block", "kind"),
    [(FeatureEmbedding, "embed"), (DeepSupervision, "aux"), (None, None)],
    ids=["embed", "aux", "none"],
)
def test_the_block_of_a_registered_network_is_found(block: type | None, kind: str | None) -> None:
    before = torch.get_rng_state()
    register_model("mine", partial(resnet, units=1, block=block))
    info = model_info("mine")
    assert info.block == kind
    assert info.has_block == (kind == "embed")
    assert info.has_scores == (kind is not None)
    assert torch.equal(torch.get_rng_state(), before)
    output = create_model("mine", 4)(torch.randn(2, 3, 32, 32))
    EmbeddingLoss(0.5 if info.has_scores else 0.0)(output, torch.tensor([0, 1])).backward()


def test_a_build_that_reads_its_weights_is_still_examined() -> None:
    """Building on the meta device fails if values are needed."""

    def build(num_classes: int, input_size: int) -> Network:
        model = resnet(num_classes, input_size, units=1, block=FeatureEmbedding)
        with torch.no_grad():
            model.head.weight.mul_(1 / model.head.weight.norm().item())
        return model

    register_model("careful", build)
    assert model_info("careful").block == "embed"


def test_a_network_takes_the_constants_of_a_registered_maximizer() -> None:
    class Softmax(nn.Module):
        def __init__(self, temperature: float):
            super().__init__()
            self.temperature = temperature

        def forward(self, a: Tensor) -> Tensor:
            return torch.softmax(a / self.temperature, dim=1)

    maximizers.register("soft", lambda channels, temperature: Softmax(temperature), {"temperature": 0.5})
    unit = create_model("rn26-embed", maximizer="soft", temperature=2.0, window=3).stage1[0]
    assert unit.maximizer.temperature == 2.0
    assert create_model("rn20", maximizer="soft").stage1[0].maximizer.temperature == 0.5
    with pytest.raises(TembedError, match="no option 'mu' with the maximizer soft"):
        create_model("rn20", maximizer="soft", mu=2.5)


def test_labels_of_registered_networks_are_aliases() -> None:
    register_model("tiny-net", partial(resnet, units=1), label="Tiny Net", block=None)
    assert canonical_name("tiny net") == "tiny-net"
    assert model_info("TINY_NET").label == "Tiny Net"


def test_mistakes_in_a_registration_are_named() -> None:
    with pytest.raises(TembedError, match="'rn26' is already registered"):
        register_model("rn26", partial(resnet, units=1))
    with pytest.raises(TembedError, match=r"`name` is 'My_Net'; .*'my-net'"):
        register_model("My_Net", partial(resnet, units=1))
    with pytest.raises(TembedError, match="`block` is 'yes'"):
        register_model("mine", partial(resnet, units=1), block="yes")
