"""The share of f' in what the block writes: against a plain calculation, in training, and over several processes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tembed.block import FeatureEmbedding
from tembed.common.progress import epoch_line
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import train
from tembed.lab.training.process_group import ProcessGroup
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.variance_share import measured_share
from tembed.models.registry import create_model
from tembed.trained.weights_file import load as load_network

DOTS = Recipe("rn26-embed", "dots", epochs=2, batch_size=16)


def plain_share(model: nn.Module, images: Tensor) -> float:
    """With NumPy, from the trace of all images at once."""
    with torch.no_grad():
        trace = model.eval().trace(images)  # type: ignore[operator]
    embedding, output = trace.embedding.double().numpy(), trace.block_output.double().numpy()
    other = trace.block_input.double().numpy() if output.shape[1] > embedding.shape[1] else output - embedding
    own, rest = (sum(np.var(part[:, k]) for k in range(part.shape[1])) for part in (embedding, other))
    return float(own / (own + rest))


@pytest.mark.parametrize("name", ["rn26-embed", "dn100-embed", "dn100-embed-cat"])
def test_the_share_is_that_of_a_plain_calculation(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, 3, 16).eval()
    images = torch.randn(7, 3, 16, 16) + torch.linspace(-1, 1, 7)[:, None, None, None]  # images that differ
    with torch.no_grad(), measured_share(model) as share:
        model(images[:5])
        model(images[5:])  # batches of different sizes
    assert share is not None
    assert share.value() == pytest.approx(plain_share(model, images), rel=1e-4)
    assert not [m for m in model.modules() if m._forward_hooks]


@pytest.mark.parametrize("name", ["rn26", "rn26-aux"])
def test_a_network_that_feeds_nothing_back_has_no_share(name: str) -> None:
    with measured_share(create_model(name)) as share:
        assert share is None


def test_hooks_are_removed_after_an_error() -> None:
    block = FeatureEmbedding(4, 3)
    with pytest.raises(RuntimeError), measured_share(block):
        block(torch.zeros(1, 5, 2, 2))
    assert not block._forward_hooks
    assert not block.values._forward_hooks


class Sums(ProcessGroup):
    """Keeps what a process gives to `sum`, or returns the sums of all processes."""

    def __init__(self, totals: list[list[float]] | None = None):
        self.given: list[list[float]] = []
        self.totals = totals

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        self.given.append(list(values))
        return values if self.totals is None else self.totals[len(self.given) - 1]


def test_the_processes_of_a_run_add_up_their_sums_even_if_one_has_no_image() -> None:
    torch.manual_seed(0)
    block = FeatureEmbedding(4, 3).eval()
    images = torch.randn(6, 4, 2, 2) + torch.arange(6.0)[:, None, None, None]
    given = []
    for part in (images[:2], images[2:], images[:0]):
        group = Sums()
        with torch.no_grad(), measured_share(block) as share:
            if len(part):
                block(part)
        assert share is not None
        share.value(group)
        given.append(group.given)
    totals = [np.sum([process[k] for process in given], 0).tolist() for k in range(2)]
    with torch.no_grad(), measured_share(block) as share:
        block(images)
    assert share is not None
    assert share.value(Sums(totals)) == pytest.approx(share.value(), rel=1e-6)


def test_training_logs_the_share_on_all_validation_images_and_is_otherwise_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(dataclasses.replace(DOTS, epochs=1), tmp_path / "run")
    (record,) = run.metrics
    inputs = load_inputs(DOTS.complete())
    images = torch.cat([images for images, _ in inputs.val.epoch(0)])
    network = load_network(run.folder)  # of the only epoch
    assert record["variance_share"] == pytest.approx(plain_share(network, images), rel=1e-4)
    assert f"f' {100 * record['variance_share']:.1f} % of the block's variance, rate" in epoch_line(record, 1)

    @dataclasses.dataclass
    class Nothing:
        def __enter__(self) -> None:
            return None

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr("tembed.lab.training.loop.measured_share", lambda model: Nothing())
    without = train(dataclasses.replace(DOTS, epochs=1), tmp_path / "without")
    weights, expected = network.state_dict(), load_network(without.folder).state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    assert without.result is not None
    assert run.result is not None
    assert run.result["test"] == without.result["test"]


def test_a_run_without_the_block_logs_none_and_shows_nothing(tmp_path: Path) -> None:
    (record,) = train(dataclasses.replace(DOTS, model="rn20", epochs=1), tmp_path / "run").metrics
    assert record["variance_share"] is None
    assert "variance" not in epoch_line(record, 1)
