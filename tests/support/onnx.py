"""ONNX files in onnxruntime beside the networks in torch."""

import random
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def seasoned(model: nn.Module, size: int = 24) -> nn.Module:
    """The model in evaluation mode with running statistics and scales that are not those of a fresh one."""
    torch.manual_seed(1)
    model.train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for _ in range(2):
            model(torch.randn(4, 3, size, size))
    return model.eval()


def random_shapes(count: int, smallest: int, largest: int) -> Iterator[tuple[int, int, int, int]]:
    """Shapes of images with any batch size and sides from ``smallest`` to ``largest``, most of them not square."""
    draw = random.Random(0)
    for _ in range(count):
        yield draw.randint(1, 5), 3, draw.randint(smallest, largest), draw.randint(smallest, largest)


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """With one thread: two test workers whose threads spin while they wait slow each other down."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def run(session: onnxruntime.InferenceSession, images: Tensor) -> dict[str, Tensor]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(None, {"images": images.numpy()})), strict=True))


def expected(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """The outputs of the original model, whose images are normalised one channel at a time."""
    normalised = torch.stack([(images[:, k] - MEAN[k]) / STD[k] for k in range(3)], dim=1)
    with torch.no_grad():
        output = model(normalised.contiguous(memory_format=torch.channels_last))
        found = {"logits": output.logits}
        if output.scores is not None:
            found["scores"] = output.scores
        mixing = model.trace(normalised).mixing
        if mixing is not None:
            found["mixing"] = mixing
    return found


def check_agreement(model: nn.Module, session: onnxruntime.InferenceSession, images: Tensor) -> None:
    ours, theirs = run(session, images), expected(model, images)
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].shape == value.shape
        scale = max(1.0, float(value.abs().max()))
        assert float((ours[name] - value).abs().max()) <= 1e-4 * scale, (name, tuple(images.shape))
