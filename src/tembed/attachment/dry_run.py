"""One call of a network on an example, to see what each of its submodules returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.attachment.feature_maps import FeatureLayout, find_layout
from tembed.common.errors import TembedError, first_line
from tembed.common.modes import evaluation_mode

Example = Tensor | int | tuple[int, int] | None
"""Images ``(N, channels, H, W)``, or the size of an image."""
DEFAULT_SIZE = 224
CLOSE = 6
"""How many names an error lists when there are many."""


class Layer(NamedTuple):
    """A submodule that the block can be attached behind.

    ``shape``: its output for one image. ``layout``: how that holds a map. ``channels``, ``map_size``: those of the map.
    ``stride``: image pixels per position, down and across.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    layout: FeatureLayout
    channels: int
    map_size: tuple[int, int]
    stride: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"

    def cells(self) -> tuple[str, ...]:
        """A row of a table with the columns ``COLUMNS``."""
        stride = " x ".join(f"{each:g}" for each in dict.fromkeys(self.stride))
        shape, (height, width) = " x ".join(map(str, self.shape)), self.map_size
        return self.name, shape, str(self.layout), str(self.channels), f"{height}x{width}", stride


COLUMNS = ("layer", "output", "layout", "channels", "map", "stride")


class Layers(list[Layer]):
    """A list of layers that prints as a table."""

    def __repr__(self) -> str:
        return aligned([COLUMNS, *(layer.cells() for layer in self)])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


class Seen(NamedTuple):
    """What a dry run saw of one submodule: how often it was called, and its last output.

    The output is a meta tensor, which has no memory, or the type of what is not a tensor.
    """

    calls: int
    output: Any


@dataclass(frozen=True, eq=False)
class DryRun:
    """A network's output for ``example``, and what each of its submodules returned."""

    example: Tensor
    output: Any
    seen: dict[str, Seen]

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width of the example, if it is images."""
        return (self.example.shape[2], self.example.shape[3]) if self.example.ndim == 4 else None

    @cached_property
    def usual(self) -> str | None:
        """The layout of those outputs ``(N, ., ., .)`` whose shape tells it, if all of them have the same."""
        maps = [seen.output for seen in self.seen.values() if isinstance(seen.output, Tensor) and seen.output.ndim == 4]
        found = [find_layout(value, self.image) for value in maps if len(value) == len(self.example)]
        kinds = {layout.kind for layout in found if isinstance(layout, FeatureLayout)}
        return kinds.pop() if len(kinds) == 1 else None


def dry_run(model: nn.Module, example: Example) -> DryRun:
    """Call the model once, in evaluation mode and without gradients. It is left as it was, without hooks."""
    x = make_example(model, example)
    seen: dict[str, Seen] = {}

    def watch(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        before = seen[name].calls if name in seen else 0
        seen[name] = Seen(before + 1, output.detach().to("meta") if isinstance(output, Tensor) else type(output))

    hooks: dict[str, Callable[..., Any]] = {name: partial(watch, name) for name, _ in model.named_modules() if name}
    try:
        output = call(model, x, hooks)
    except TembedError:
        raise
    except Exception as error:
        raise TembedError(
            f"{type(model).__name__} cannot be called with images of shape {tuple(x.shape)} ({first_line(error)}): "
            "give `example`, a tensor or an image size that it accepts"
        ) from error
    return DryRun(x, output, seen)


def call(model: nn.Module, x: Tensor, hooks: dict[str, Callable[..., Any]]) -> Any:
    """The model's output in evaluation mode, with these forward hooks by submodule. Everything is restored after."""
    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        with evaluation_mode(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
            return model(x)
    finally:
        for handle in handles:
            handle.remove()


def make_example(model: nn.Module, example: Example) -> Tensor:
    """The images for a dry run: those given, or one image of noise, of the given size or the model's own."""
    first = next(model.parameters(), None)
    device, dtype = (torch.device("cpu"), torch.float32) if first is None else (first.device, first.dtype)
    if isinstance(example, Tensor):
        return example.to(device)
    size = (example, example) if isinstance(example, int) else example
    if size is not None and not (
        isinstance(size, tuple) and len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size)
    ):
        raise TembedError(f"`example` is {example!r}; it must be a tensor of images, a side in pixels, or two sides")
    channels, own_size = _expected(model)
    if channels is None:
        raise TembedError(
            f"the first layer of {type(model).__name__} does not tell the channels of its images: give `example`, a "
            "tensor of images"
        )
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, channels, *(size or own_size), generator=generator).to(device, dtype)


def _expected(model: nn.Module) -> tuple[int | None, tuple[int, int]]:
    """The channels and the size of the images that a model expects: from timm's record, or from its first layer."""
    record = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = record.get("input_size") if isinstance(record, dict) else None
    square = (int(size[1]), int(size[2])) if size else (DEFAULT_SIZE, DEFAULT_SIZE)
    own = getattr(getattr(model, "patch_embed", None), "img_size", None)  # may differ from timm's record
    if isinstance(own, tuple) and len(own) == 2:
        square = own
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return module.in_channels or None, square  # 0 in a lazy layer
        if next(module.parameters(recurse=False), None) is not None and not list(module.children()):
            return None, square  # another kind of first layer
    return None, square


def layers_of(model: nn.Module, run: DryRun) -> list[Layer]:
    """The submodules of a dry run that are called once and return a map, in the order of their calls."""
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    found = []
    for name, seen in run.seen.items():
        layout = layout_of(model, run, name) if seen.calls == 1 else ""
        if isinstance(layout, FeatureLayout):
            found.append(make_layer(name, kinds[name], seen.output, layout, run.image))
    return found


def layout_of(model: nn.Module, run: DryRun, name: str, **given: Any) -> FeatureLayout | str:
    """The layout of a submodule's output, or why there is none. ``given``: the arguments of `attach`."""
    output, images = run.seen[name].output, len(run.example)
    if isinstance(output, Tensor) and output.ndim and len(output) != images:
        return f"the first axis of its output {tuple(output.shape)} is not the batch, which has the size {images}"
    return find_layout(output, run.image, own_prefix_tokens(model), usual=run.usual, **given)


def make_layer(name: str, kind: str, output: Tensor, layout: FeatureLayout, image: tuple[int, int] | None) -> Layer:
    f = layout.to_map(output)
    height, width = f.shape[2], f.shape[3]
    stride = (image[0] / height, image[1] / width) if image else (float("nan"), float("nan"))
    return Layer(name, kind, (1, *output.shape[1:]), layout, f.shape[1], (height, width), stride)


def own_prefix_tokens(model: nn.Module) -> int | None:
    """How many class and register tokens the model says it has."""
    count = getattr(model, "num_prefix_tokens", None)
    return count if isinstance(count, int) else None


def list_layers(model: nn.Module, example: Example = None) -> Layers:
    """The submodules that `attach` can put the block behind, in the order in which they are called.

    The list prints as a table.

    ``example``: a tensor of images, or an image size; by default one image of the size that the model expects.
    """
    check_module(model)
    return Layers(layers_of(model, dry_run(model, example)))


def check_module(model: object) -> None:
    """Raise `TembedError` for what is not a network, such as its name."""
    if not isinstance(model, nn.Module):
        raise TembedError(f"`model` has the type {type(model).__name__}; it must be a torch.nn.Module")


def refuse(at: str, why: str, layers: list[Layer]) -> TembedError:
    """The error for a submodule that the block cannot be attached behind. It lists those that would do."""
    top = [layer for layer in layers if layer.name.count(".") <= 1] or layers
    listed = ", ".join(map(str, layers if len(layers) <= CLOSE else top))
    return TembedError(f"cannot attach a block behind {at!r}: {why}; choose from: {listed or 'none'}")
