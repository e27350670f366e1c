"""The receptive field of each layer of any network: the pixels of the image that a position of its map depends on.

One row (or column) of the image is changed at a time, and the change is followed through the network by comparing with
the unchanged image. It must not fade on the way, so the network gets other weights, and the change is renewed: the
weights are positive and small, so that no ReLU is closed, nothing saturates and nothing cancels; and where the output
of a module has changed at all, it gets a large new change. What mixes all positions, such as attention or a mean over
the map, sees the whole image.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.attachment.dry_run import Example, Layer, dry_run, layers_of
from tembed.common.modes import evaluation_mode

GAIN = 0.1
"""The sum of the weights of each output."""
ROUNDING = 1e-5
"""A difference below this share of the largest value of a map comes from rounding."""
BATCH = 32
"""Rows that are followed at once."""
NARROW = 64
"""Pixels across an image whose rows are followed, which saves time where a network takes images of any shape."""


class ReceptiveField(NamedTuple):
    """Which pixels the positions of a map see, down and across.

    Position ``i`` sees ``size`` pixels from ``start + stride * i`` on, and some of them may lie outside the image.
    ``size`` is None if a position in the corner, or the one beside it, sees the opposite border: then nearly all see
    the whole image. If positions see regions of different sizes, such as windows of attention, it is the largest one.
    """

    size: tuple[int, int] | None
    stride: tuple[int, int]
    start: tuple[int, int]

    def __str__(self) -> str:
        return "image" if self.size is None else " x ".join(map(str, dict.fromkeys(self.size)))


def receptive_fields(
    model: nn.Module, example: Example = None, layers: Iterable[str] | None = None
) -> dict[str, ReceptiveField]:
    """The receptive fields of the layers with these names, by default of all that `list_layers` names.

    ``example``: as for `list_layers`. The pixels are those of images of this size.
    """
    run = dry_run(model, example)
    known = {layer.name: layer for layer in layers_of(model, run)}
    wanted = [known[name] for name in (known if layers is None else layers)]
    rows, columns = (_dependencies(model, run.example, wanted, axis) for axis in (2, 3))
    return {layer.name: _field(rows[layer.name], columns[layer.name]) for layer in wanted}


def _dependencies(model: nn.Module, example: Tensor, layers: list[Layer], axis: int) -> dict[str, Tensor]:
    """Whether each row of the image is seen by each row of a layer's map: ``(H, h)``; with ``axis=3``, of columns."""
    shape = [1, *example.shape[1:]]
    narrow = [min(side, NARROW) if index == 5 - axis else side for index, side in enumerate(shape)]
    if narrow != shape:
        with suppress(Exception):  # the network, or the layout of its tokens, needs images of the example's shape
            found = _followed(model, example.new_empty(narrow), layers, axis)
            if all(found[layer.name].shape[1] == layer.map_size[axis - 2] for layer in layers):
                return found  # otherwise the network resizes its images
    return _followed(model, example.new_empty(shape), layers, axis)


@torch.no_grad()
def _followed(model: nn.Module, image: Tensor, layers: list[Layer], axis: int) -> dict[str, Tensor]:
    """The dependencies of the layers, from images of this shape."""
    wanted = {layer.name: layer for layer in layers}
    found: dict[str, list[Tensor]] = {name: [] for name in wanted}

    def renew(name: str, module: nn.Module, inputs: Any, output: Any) -> Any:
        """Compare with the first image, which is unchanged, and make every change large."""
        if not isinstance(output, Tensor) or len(output) != len(x) or not output.is_floating_point():
            return output
        base, largest = output[:1], output[:1].abs().max()
        changed = (output - base).abs() > ROUNDING * largest
        if name in wanted:
            seen = wanted[name].layout.to_map(changed[1:]).any(1)
            found[name].append(seen.any(4 - axis).cpu())
        return torch.where(changed, base + (1 + noise_like(base)) * (1 + largest), base)

    def noise_like(value: Tensor) -> Tensor:
        return torch.rand(value.shape, generator=generator, dtype=torch.float32).to(value)

    generator = torch.Generator().manual_seed(0)
    weights = _open_weights(model, noise_like)
    base = 0.5 + noise_like(image)
    handles = [module.register_forward_hook(partial(renew, name)) for name, module in model.named_modules()]
    try:
        with evaluation_mode(model), torch.random.fork_rng(devices=[]):
            for start in range(0, image.shape[axis], BATCH):
                lines = range(start, min(start + BATCH, image.shape[axis]))
                x = base.repeat(1 + len(lines), 1, 1, 1)
                for number, line in enumerate(lines, 1):
                    x[number].select(axis - 1, line).add_(2)
                torch.func.functional_call(model, weights, (x,))
    finally:
        for handle in handles:
            handle.remove()
    return {name: torch.cat(parts) for name, parts in found.items()}


def _open_weights(model: nn.Module, noise_like: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Parameters and statistics for which every layer passes on a change of any of its inputs."""
    values: dict[str, Tensor] = {}
    for name, old in model.named_parameters():
        if not old.is_floating_point():
            continue
        value: Tensor = 0.5 + noise_like(old)
        if name.endswith("bias"):
            value = value / 5
        elif value.ndim > 1:
            value = GAIN * value / value.flatten(1).sum(1).view(-1, *[1] * (value.ndim - 1))
        values[name] = value
    for name, statistic in model.named_buffers():
        if name.endswith("running_mean"):
            values[name] = torch.zeros_like(statistic)
        elif name.endswith("running_var"):
            values[name] = torch.ones_like(statistic)
    return values


def _field(*seen: Tensor) -> ReceptiveField:
    """The field of a map, from the rows and the columns of the image that its positions see: ``(H, h)``, ``(W, w)``."""
    spans = [_span(each) for each in seen]
    if any(size is None for size, _, _ in spans):
        return ReceptiveField(None, (0, 0), (0, 0))
    sizes, strides, starts = zip(*spans, strict=True)
    return ReceptiveField(sizes, strides, starts)


def _span(seen: Tensor) -> tuple[int | None, int, int]:
    """Size, stride and start along one side. The borders of the image cut off what most positions see.

    The end of what the first position sees is not cut off, nor is the start of what the last one sees.
    """
    lines, positions = seen.shape
    index = torch.arange(lines)[:, None]
    first = torch.where(seen, index, lines).amin(0).tolist()
    last = torch.where(seen, index, -1).amax(0).tolist()
    if last[0] == lines - 1 or first[-1] == 0:
        return None, 0, 0
    if positions == 1:
        return max(0, last[0] - first[0] + 1), 0, first[0]
    if last[1] < lines - 1:
        stride = last[1] - last[0]
    elif first[-2] > 0:
        stride = first[-1] - first[-2]
    else:
        return None, 0, 0
    start = first[-1] - stride * (positions - 1)
    if stride > 0:
        return last[0] - start + 1, stride, start
    return max(0, *(end - begin + 1 for begin, end in zip(first, last, strict=True))), 0, first[0]
