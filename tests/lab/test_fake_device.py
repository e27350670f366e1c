"""On a GPU everything is computed as on the CPU, and the host never waits for a step.

The device is made of Python (`support.fake_device`): it has the CPU's bits where the CPU uses no kernel of its own.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.datasets import store_world
from support.fake_device import BACKEND, NAME, Counts, Device, counted, on_fake_device
from support.features import save_untrained
from support.kills import fingerprint

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.kernels import exact_p2, fused_bn_relu
from tembed.lab.analysis.explaining import explain
from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.knock_outs import trained_knock_outs
from tembed.lab.analysis.units import measure_units
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.device_batches import ResidentBatches, StreamedBatches, on_device
from tembed.lab.data.loading import load
from tembed.lab.training import loop
from tembed.lab.training.evaluation import evaluate, evaluate_in_detail
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.inputs import load_inputs
from tembed.lab.training.loop import Training, train
from tembed.lab.training.muon import Muon
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.maximizers.calibrate import calibrate
from tembed.maximizers.lookup import create, names
from tembed.models.registry import create_model
from tembed.trained.predicting import predict
from tembed.trained.weights_file import load as load_network

pytestmark = pytest.mark.usefixtures("use_worlds")

AVERAGED = Recipe(
    "wrn16-embed", "dots", epochs=1, batch_size=13, train_images=33, averaging=0.7, balanced=True, label_smoothing=0.1
)
SHORT = Recipe("wrn16-embed", "dots", epochs=1, batch_size=2, train_images=12, conventions="keras")
"""Six steps, whose gradients are clipped."""
CPU = Hardware(accelerator="cpu")


@contextmanager
def without_kernels() -> Iterator[None]:
    """The CPU computes with torch's operations, as the device does."""
    with (
        mock.patch.object(fused_bn_relu, "load", return_value=None),
        mock.patch.object(exact_p2, "load", return_value=None),
    ):
        yield


class CountedSteps(Progress):
    """What the device did before the first step, and in each step."""

    def __init__(self) -> None:
        self.steps: list[Counts] = []

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        if task == "training":
            self.steps.append(Device.current.counts)
            Device.current.counts = Counts()


def counted_steps(recipe: Recipe, out: Path) -> list[Counts]:
    """The steps of one epoch."""
    seen = CountedSteps()
    with counted():
        train(recipe, out, progress=seen)
    return seen.steps[1:]


@on_fake_device
def test_a_step_waits_for_nothing_copies_nothing_and_launches_little(tmp_path: Path) -> None:
    """The 20 steps after the first one."""
    changes = {"averaging": 1.0, "balanced": True, "label_smoothing": 0.1}
    recipe = Recipe.fast("rn26-embed", "dots", epochs=1, batch_size=2, train_images=44, **changes)
    steps = counted_steps(recipe, tmp_path / "run")
    assert len(steps) == 22
    for step in steps[1:21]:
        assert not step.reads
        assert not step.copies
        assert sum(step.launches.values()) < 400, step.launches


@on_fake_device
def test_steps_are_read_now_and_then(tmp_path: Path) -> None:
    with mock.patch.object(loop, "READ_STEPS", 2):
        steps = counted_steps(SHORT, tmp_path / "run")
    assert [sum(step.reads.values()) for step in steps] == [0, 1, 0, 1, 0, 1]
    assert not any(step.copies for step in steps[1:])


@on_fake_device
def test_a_run_leaves_what_it_leaves_on_the_cpu(tmp_path: Path) -> None:
    ours = train(AVERAGED, tmp_path / "device")
    with without_kernels():
        theirs = train(AVERAGED, tmp_path / "cpu", hardware=CPU)
        assert fingerprint(ours.folder) == fingerprint(theirs.folder)
        found = [evaluate_in_detail(ours.folder, "val", accelerator=name) for name in (NAME, "cpu")]
        assert found[0].evaluation == found[1].evaluation
        assert np.array_equal(found[0].predictions.probabilities, found[1].predictions.probabilities)
        assert np.array_equal(found[0].predictions.patches, found[1].predictions.patches)
        pictures = list(load("dots").test.pixels([0, 1]))
        assert repr(predict(ours.folder, pictures)) == repr(predict(ours.folder, pictures, accelerator="cpu"))
        for picture in pictures:
            (mine,), (other,) = (explain(ours.folder, picture, accelerator=name) for name in (NAME, "cpu"))
            assert np.array_equal(mine.patch_probabilities, other.patch_probabilities)
            assert np.array_equal(mine.probabilities, other.probabilities)
            assert np.array_equal(mine.entropy, other.entropy)


@on_fake_device
def test_frozen_features_are_those_of_the_cpu(tmp_path: Path) -> None:
    recipe = Recipe.from_preset("frozen", "tembed:rn20@stage2", "dots", init="random", epochs=1, batch_size=13)
    left = []
    for name, hardware in (("device", Hardware()), ("cpu", CPU)):
        with without_kernels(), mock.patch.dict("os.environ", TEMBED_CACHE=str(tmp_path / f"cache of {name}")):
            left.append(fingerprint(train(recipe, tmp_path / name, hardware=hardware).folder))
    assert left[0] == left[1]


@on_fake_device
def test_an_evaluation_is_read_once(tmp_path: Path) -> None:
    network = load_network(save_untrained(tmp_path / "w", "wrn16-embed", "dots", load("dots").test.classes, 8))
    with counted() as found, mock.patch("tembed.lab.training.evaluation.EVAL_BATCH", 5):
        evaluate(network)
    assert sum(found.reads.values()) == 1, found.reads


@pytest.mark.parametrize("name", names())
@on_fake_device
def test_a_maximizer_waits_for_nothing(name: str) -> None:
    torch.manual_seed(0)
    a = torch.randn(2, 5, 3, 3)
    found = []
    for device in ("cpu", NAME):
        module = create(name, 5).to(device)
        x = a.clone().to(device).requires_grad_()
        torch.manual_seed(1)
        with counted() as counts, without_kernels():
            p = module(x)
            p.backward(torch.ones_like(p))
        found.append((p.detach().cpu(), x.grad.cpu()))
        assert not counts.reads
        assert not counts.copies
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@on_fake_device
def test_batches_on_the_device_have_the_bits_of_the_cpu() -> None:
    for recipe in (AVERAGED, Recipe("rn26-embed", "tiny", flips="alternating", batch_size=50)):
        inputs = load_inputs(recipe)
        ours = (inputs.train, inputs.val)
        kinds: dict[int, type] = {1 << 30: ResidentBatches, 0: StreamedBatches}
        for free, kind in kinds.items():
            with mock.patch.object(BACKEND, "free", free):
                theirs = on_device(torch.device(NAME), *ours)
            for here, there in zip(ours, theirs, strict=True):
                assert type(there) is kind
                for epoch in (0, 3):
                    for step, (images, labels) in enumerate(here.epoch(epoch)):
                        with counted() as found:
                            on, of = there.batch(epoch, step)
                        assert on.is_contiguous(memory_format=torch.channels_last)
                        assert torch.equal(on.cpu(), images)
                        assert torch.equal(of.cpu(), labels)
                        copies = sorted(copied.rpartition(" ")[0] for copied in found.copies.elements())
                        if kind is StreamedBatches:
                            assert copies == ["torch.int64 ahead", "torch.uint8 ahead"]
                        else:
                            assert step == 0 or not copies  # the order and the crops of the epoch
                        assert not found.reads


@on_fake_device
def test_a_loss_that_is_not_finite_names_its_step_and_is_never_saved(tmp_path: Path) -> None:
    """NaN appears in the step before the checkpoint, and nothing is read between the two."""
    step, save = Training.train_step, 4

    def poisoned(self: Training, side: int) -> None:
        if self.state.step == save - 1:
            with torch.no_grad():
                next(iter(self.model.parameters())).fill_(math.nan)
        step(self, side)
        self.checkpoint_seconds = 0 if self.state.step == save - 1 else 1e9

    with mock.patch.object(Training, "train_step", poisoned), pytest.raises(TembedError) as caught:
        train(SHORT, tmp_path / "run")
    inputs = load_inputs(SHORT)
    images = inputs.train.images.indices[inputs.train.order.positions(0, save - 1)].tolist()
    assert f"the loss is nan at step {save - 1} of epoch 1, on the images {images} of dots" in str(caught.value)
    assert not Run(tmp_path / "run").checkpoints.any
    assert not Run(tmp_path / "run").best_path.exists()


@on_fake_device
def test_packed_kernels_take_the_steps_of_single_ones() -> None:
    torch.manual_seed(0)
    plain = create_model("rn26-embed", 10, 8)
    moved = copy.deepcopy(plain).to(NAME)
    muons = [Muon(model, 0.02, (0.9, 0.99), 0.01) for model in (plain, moved)]
    for _ in range(2):
        for p, q in zip(plain.parameters(), moved.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.to(NAME)
        for muon in muons:
            muon.step()
    for (name, p), q in zip(plain.named_parameters(), moved.parameters(), strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=1e-4, atol=1e-5, msg=name)


@on_fake_device
def test_the_analysis_measures_the_same_where_cuda_refuses_operations(tmp_path: Path) -> None:
    store_world(tmp_path, "dots", 100, 8)
    images = load("dots", root=tmp_path).test
    network = load_network(save_untrained(tmp_path / "w.safetensors", "rn26-embed", "dots", images.classes, 8))
    for norm in (module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.normal_(norm.bias)  # so that there are margins
    pictures = torch.randn(4, 3, 8, 8)
    measures = {
        "knock-outs": lambda model: repr(trained_knock_outs(model, images)),
        "units": lambda model: [float(unit.points.eta.sum()) for unit in measure_units(model, images)],
        "untrained": lambda model: untrained(model, images, 0).block.values.weight.detach().cpu().tolist(),
        "features": lambda model: extract_features(model, images).logits.tolist(),
        "calibration": lambda model: calibrate(model, pictures.to(next(model.parameters()).device)),
    }
    with without_kernels():
        for name, measure in measures.items():
            here, there = (measure(copy.deepcopy(network).to(place)) for place in ("cpu", NAME))
            assert here == there, name


@on_fake_device
def test_the_device_refuses_and_counts() -> None:
    ones = torch.ones(2, 2, device=NAME)
    with counted() as found:
        assert (ones + ones).sum().item() == 8
        torch.tensor([1.0], device=NAME)
        ones[ones > 0]
        ones.cpu()
        ones.t()
    assert (sum(found.reads.values()), sum(found.copies.values())) == (3, 1)
    assert sum(found.launches.values()) == 4  # add, sum, compare, index
    for wrong, message in (
        (lambda: ones.double(), "float64"),
        (lambda: ones + torch.ones(2, 2), "same device"),
    ):
        with pytest.raises((TypeError, RuntimeError), match=message):
            wrong()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            F.cross_entropy(torch.ones(2, 3, 2, 2, device=NAME), torch.zeros(2, 2, 2, dtype=torch.int64, device=NAME))
    finally:
        torch.use_deterministic_algorithms(False)
