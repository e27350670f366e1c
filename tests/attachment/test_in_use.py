"""An attached block that is switched off, looked at, saved and loaded."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tembed
from tembed.attachment import Attached
from tembed.common.errors import TembedError


class Small(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.layer = nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 3, stride=2, padding=1))
        self.head = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.stem(x)).relu().mean((2, 3)))


@pytest.fixture
def attached() -> Attached:
    torch.manual_seed(0)
    return tembed.attach(Small(), "layer", 4, start="paper", example=8, window=2).eval()


X = torch.randn(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_disabled_block_leaves_the_original_network(attached: Attached) -> None:
    before = attached(X).logits
    with tembed.disabled(attached):
        output = attached(X)
    assert output.scores is None
    assert torch.equal(attached(X).logits, before)
    original = tembed.detach(attached)
    assert torch.equal(output.logits, original(X))
    assert not torch.equal(output.logits, before)


def test_the_status_says_where_the_block_is_and_what_it_changes(attached: Attached) -> None:
    found = tembed.status(attached)
    assert (found.at, found.kind, found.layout, found.classes, found.changed) == ("layer", "embed", "nchw", 4, None)
    assert found.parameters == sum(p.numel() for p in attached.block.parameters())
    assert found.network_parameters == sum(p.numel() for p in Small().parameters())
    with torch.no_grad():
        attached.block.values.weight.mul_(20)
    found = tembed.status(attached, X)
    trace = attached.trace(X)
    own, rest = (m.var((0, 2, 3), correction=0).sum() for m in (trace.embedding, trace.block_output - trace.embedding))
    assert found.share == pytest.approx((own / (own + rest)).item(), rel=1e-4)
    features = trace.block_output - trace.embedding
    without = attached.model.head(features.relu().mean((2, 3)))
    changed = int((without.argmax(1) != trace.logits.argmax(1)).sum())
    assert 0 < changed == found.changed
    assert f"without f', {changed} of 20 images are classified differently" in str(found)
    with tembed.disabled(attached):
        assert "4 classes, disabled" in str(tembed.status(attached))


def test_a_bystander_is_idle() -> None:
    attached = tembed.attach(Small(), "layer", 4, example=8)
    assert "the block is idle on these images" in str(tembed.status(attached, X))
    assert attached.training


def test_a_saved_block_is_small_and_comes_back(attached: Attached, tmp_path: Path) -> None:
    attached.image_size = 6
    expected = attached(X)
    path = tembed.save_block(attached, tmp_path / "block.safetensors")
    assert path.stat().st_size < 8000
    again = tembed.load_block(tembed.detach(attached), path, example=8).eval()
    found = again(X)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.scores, expected.scores)
    assert again.block.match.window == (2, 2)
    elsewhere = tembed.load_block(Small(), path, at="stem", example=8).eval()
    assert (elsewhere.at, elsewhere.image_size) == ("stem", 6)


def test_a_block_that_does_not_fit_leaves_the_network_alone(attached: Attached, tmp_path: Path) -> None:
    path, other = tembed.save_block(attached, tmp_path / "block"), Small(6)
    with pytest.raises(TembedError, match=r"block does not fit behind 'layer' of Small \(match\.score\.weight has the"):
        tembed.load_block(other, path, example=8)
    assert isinstance(other(X), Tensor)
    assert type(other.layer) is nn.Sequential


@pytest.mark.parametrize("content", [b"", b"\x00" * 40, b"12345678{}"])
def test_a_file_that_is_no_block_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "block").write_bytes(content)
    with pytest.raises(TembedError, match=r"block is not a block of tembed\.save_block .*: copy it again"):
        tembed.load_block(Small(), tmp_path / "block", example=8)


def test_what_a_file_cannot_describe_is_refused(tmp_path: Path) -> None:
    own = tembed.attach(Small(), "layer", 4, example=8, maximizer=nn.ReLU())
    with pytest.raises(TembedError, match="`maximizer` of this block is a module"):
        tembed.save_block(own, tmp_path / "block")
    for call in (tembed.status, lambda model: tembed.save_block(model, tmp_path / "block")):
        with pytest.raises(TembedError, match=r"it must be what tembed\.attach returned"):
            call(Small())  # type: ignore[arg-type]


def test_a_compiled_network_is_refused_with_the_way_out() -> None:
    with pytest.raises(TembedError, match=r"attach the block first, then compile"):
        tembed.attach(torch.compile(Small(), backend="eager"), "layer", 4, example=8)  # type: ignore[arg-type]
