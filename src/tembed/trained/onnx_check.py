"""Compares an ONNX file in onnxruntime with the network in torch."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tembed.common.extras import needs

TOLERANCE = 1e-4
"""How far an output may be from torch's, as a multiple of ``max(1, largest value)``."""


def largest_difference(network: nn.Module, content: bytes, images: Tensor, free: Iterable[str]) -> float:
    """The largest relative difference of any output, over batch and image sizes that the free axes allow.

    ``network`` returns tensors by the names of the file's outputs. A size that the network itself refuses does not
    count, but the size of ``images`` does.
    """
    session = quiet_session(content)
    largest = 0.0
    for number, shape in enumerate(shapes(tuple(images.shape), free)):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(number))
        try:
            with torch.no_grad():
                expected = network(x)
        except Exception:
            if number == 0:
                raise
            continue
        largest = max(largest, difference(session, x, expected))
    return largest


def difference(session: Any, images: Tensor, expected: Mapping[str, Tensor]) -> float:
    """The largest difference of any output for these images, as a multiple of ``max(1, largest value)``."""
    largest = 0.0
    for found, value in zip(session.run(list(expected), {"images": images.numpy()}), expected.values(), strict=True):
        if found.shape != tuple(value.shape) or not np.isfinite(found).all():
            return float("inf")
        largest = max(largest, float(abs(found - value.numpy()).max() / max(1.0, float(value.abs().max()))))
    return largest


def shapes(shape: tuple[int, ...], free: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """The shape itself, then others: one image, more images, odd, wide, high, smaller and larger sizes."""
    batch, channels, height, width = shape
    yield shape
    if "batch" in free:
        yield 1, channels, height, width
        yield batch + 3, channels, height, width
    if "height" in free or "width" in free:
        tall = height + 5 if "height" in free else height
        wide = width + 12 if "width" in free else width
        yield 1, channels, tall, width
        yield 1, channels, height, wide
        yield 1, channels, height * 3 // 4 + 1 if "height" in free else height, wide
        yield 1, channels, height, width * 3 // 4 + 1 if "width" in free else width


def quiet_session(content: bytes) -> Any:
    """An onnxruntime session that logs only errors."""
    runtime = needs("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
