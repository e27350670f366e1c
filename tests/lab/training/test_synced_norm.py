"""Batch statistics over several processes are those of the whole batch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tembed.common.errors import TembedError
from tembed.lab.training.synced_norm import synchronise
from tembed.maximizers.bn_relu import BNReLU

CPU = torch.device("cpu")
PEERS = Path(__file__).with_name("peers.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("peers")
    store = folder / "store"
    files = [folder / str(rank) for rank in range(2)]
    started = [subprocess.Popen([sys.executable, PEERS, str(rank), store, file]) for rank, file in enumerate(files)]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.process
def test_unequal_shares_normalise_like_the_whole_batch(found: list[dict[str, Any]]) -> None:
    """Compares forward, all gradients and running statistics, far from zero, where sums of squares would cancel."""
    for differences in found:
        assert len(differences["norm"]) == 9
        assert max(differences["norm"].values()) < 1e-12


def test_the_kernel_for_one_process_is_not_used() -> None:
    x = torch.randn(4, 8, 3, 3).contiguous(memory_format=torch.channels_last)
    bn = BNReLU(8)
    assert bn.has_kernel(x)
    synchronise(bn, CPU)
    assert not bn.has_kernel(x)


def test_gpus_use_torchs_own() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), BNReLU(8))
    names, parameters = list(model.state_dict()), list(model.parameters())
    synchronise(model, torch.device("cuda"))
    assert type(model[1].bn) is nn.SyncBatchNorm
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


@pytest.mark.process
def test_the_means_of_a_batch_weight_each_share_by_its_images(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["means"] == pytest.approx([1.4, 14.0, 1.0])


class Activated(nn.BatchNorm2d):
    """Like timm's `BatchNormAct2d`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).relu()


@pytest.mark.parametrize(
    "norm", [Activated(4), nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(4, momentum=None)], ids=str
)
def test_a_normalisation_that_would_become_another_one_is_refused(norm: nn.BatchNorm2d) -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), norm)
    with pytest.raises(TembedError, match=r"1 is a \w+ whose statistics .*: train on one device"):
        synchronise(model, CPU)
    assert type(model[0]) is nn.BatchNorm2d, "nothing has changed"


@pytest.mark.process
def test_half_precision_keeps_its_statistics_in_single(found: list[dict[str, Any]]) -> None:
    assert max(differences["half"]["all"] for differences in found) < 0.02  # the rounding error of values up to 3
