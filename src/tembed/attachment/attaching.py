"""`attach` and `detach`: checks, the choice of layout and block, and the start."""

import difflib
import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tembed.attachment.attached import Attached, Block, is_exchanged, logits_of, restore_class
from tembed.attachment.dry_run import DryRun, Example, call, check_module, dry_run, layers_of, layout_of, refuse
from tembed.attachment.feature_maps import LAYOUTS, FeatureLayout
from tembed.block import DeepSupervision, FeatureEmbedding, UnitConv2d
from tembed.common.errors import TembedError, first_line
from tembed.common.modes import evaluation_mode

Start = Literal["bystander", "paper"]


class AttachWarning(UserWarning):
    """The block can be attached there, but it will see or change less than it should."""


def attach(
    model: nn.Module,
    at: str,
    num_classes: int,
    *,
    example: Example = None,
    start: Start = "bystander",
    layout: Literal["auto", "nchw", "nhwc", "tokens"] = "auto",
    prefix_tokens: int | None = None,
    grid: tuple[int, int] | None = None,
    block: Literal["embed", "aux", "none"] = "embed",
    **block_options: Any,
) -> Attached:
    """Insert the block (§3.3) behind a submodule of any network. The result returns `Output`.

    The network itself is changed, not copied; `detach` gives it back.

    Args:
        model: a network whose output is logits ``(N, num_classes)``: a tensor, something with ``.logits``, or a tuple
            that begins with them.
        at: the name of the submodule, such as ``"layer3"``; `list_layers` lists the candidates. Its output is
            ``(N, C, H, W)``, channels-last ``(N, H, W, C)``, or tokens ``(N, L, C)``.
        num_classes: ``C``, the classes that patches are matched to.
        example: images, or an image size, for the dry run that infers the channels; needed where the network's first
            layer does not tell them, or where it does not accept images of the size that it names (else 224).
        start: ``"bystander"``: identity shortcut and zero class vectors, so that the logits stay the same until the
            first step. ``"paper"``: the paper's initialisation.
        layout: needed where the shape of the output is ambiguous.
        prefix_tokens: class and register tokens, which bypass the block; by default the model's
            ``num_prefix_tokens``, else the excess over a square.
        grid: height and width of the grid of tokens, unless it is square.
        block: ``"embed"``: the block; ``"aux"``: deep supervision only; ``"none"``: no block, for a baseline that can
            be traced at the same place.
        block_options: options of `FeatureEmbedding`. ``window`` is half the map by default, or one position for tokens
            and channels-last maps.
    """
    _check_arguments(model, start, layout, block, grid, prefix_tokens)
    run = dry_run(model, example)
    _check_logits(run, num_classes)
    found = _find(model, at, run, layout=layout, prefix_tokens=prefix_tokens, grid=grid)
    f = found.to_map(run.seen[at].output)
    if f.shape[2:] == (1, 1):
        _warn(f"the map behind {at!r} is a single position, so the block sees one patch per image")
    made = make_block(block, f.shape[1], num_classes, found, start, block_options)
    if made is not None:
        made.to(run.example.device, f.dtype).train(model.training)
        if block == "embed" and _is_ignored(model, at, found, run.example):
            _warn(
                f"the logits do not depend on the map behind {at!r}, so what the block writes can change nothing: "
                "attach it earlier"
            )
    attached = Attached(model, at, made, found, num_classes, {"block": block} | block_options)
    try:
        with evaluation_mode(attached), torch.no_grad(), torch.random.fork_rng(devices=[]):
            attached(run.example)
    except Exception as error:
        detach(attached)
        if isinstance(error, TembedError):
            raise
        raise TembedError(
            f"{type(model).__name__} fails with the block behind {at!r} ({first_line(error)}): with these options the "
            f"block writes {made.out_channels if made else 0} channels, and the submodule {f.shape[1]}"
        ) from error
    return attached


def detach(model: Attached) -> nn.Module:
    """The original network, the same object, with its current weights and its own state-dict names.

    ``model`` cannot be called any more. Its block stays usable as ``model.block``.
    """
    if not isinstance(model, Attached):
        raise TembedError(f"`model` is a {type(model).__name__}; it must be what tembed.attach returned")
    submodule = model.model.get_submodule(model.at)
    if is_exchanged(submodule):
        restore_class(submodule)
    return model.model


# --- the block


def make_block(
    kind: str, channels: int, num_classes: int, layout: FeatureLayout, start: str, options: dict[str, Any]
) -> Block | None:
    if kind == "none":
        if options:
            raise TembedError(f"`{next(iter(options))}` does not apply without a block; leave it out")
        return None
    if layout.kind != "nchw":
        options = {"window": 1} | options
    accepted = "window" if kind == "aux" else "the options of tembed.FeatureEmbedding"
    try:
        if kind == "aux":
            return DeepSupervision(channels, num_classes, **options)
        if start == "bystander":
            _check_bystander(channels, options)
        block = FeatureEmbedding(channels, num_classes, **options)
    except TypeError as error:
        raise TembedError(f"the block does not take these options ({first_line(error)}): give {accepted}") from None
    if start == "bystander":
        start_as_bystander(block)
    return block


def _check_bystander(channels: int, options: dict[str, Any]) -> None:
    for name, harmless in (
        ("smooth_shortcut", (False,)),
        ("norm_shortcut", (False,)),
        ("concat", (False,)),
        ("value_dim", (None, channels)),
    ):
        if options.get(name, harmless[0]) not in harmless:
            raise TembedError(
                f"`{name}` changes the features from the start, so the block cannot start as a bystander: leave it "
                "out, or set `start` to paper"
            )


@torch.no_grad()
def start_as_bystander(block: FeatureEmbedding) -> None:
    """Set the shortcut to the identity and the class vectors to zero: the block returns its input unchanged."""
    (block.values.scale if isinstance(block.values, UnitConv2d) else block.values.weight).zero_()
    start_with_identity(block)


def start_with_identity(block: FeatureEmbedding) -> None:
    """Set the shortcut to the identity: the block returns its input plus ``f'``."""
    if isinstance(block.shortcut, nn.Conv2d):
        nn.init.dirac_(block.shortcut.weight)


# --- checks


def _check_arguments(
    model: nn.Module, start: str, layout: str, block: str, grid: tuple[int, int] | None, prefix_tokens: int | None
) -> None:
    check_module(model)
    if isinstance(model, torch._dynamo.OptimizedModule):
        raise TembedError(
            "`model` is compiled, and its compiled code would go on without the block: attach the block first, then "
            "compile the result with torch.compile"
        )
    for name, value, known in (
        ("start", start, ("bystander", "paper")),
        ("layout", layout, ("auto", *LAYOUTS)),
        ("block", block, ("embed", "aux", "none")),
    ):
        if value not in known:
            raise TembedError(f"`{name}` is {value!r}; it must be one of {', '.join(known)}")
    if grid is not None and (len(grid) != 2 or min(grid) < 1):
        raise TembedError(f"`grid` is {grid!r}; it must be a height and a width")
    if prefix_tokens is not None and prefix_tokens < 0:
        raise TembedError(f"`prefix_tokens` is {prefix_tokens}; it must be at least 0")
    if isinstance(model, Attached) or any(map(is_exchanged, model.modules())):
        raise TembedError("`model` already has a block attached: detach that one first")


def _check_logits(run: DryRun, num_classes: int) -> None:
    logits = logits_of(run.output)
    if logits.ndim != 2 or logits.shape[1] != num_classes:
        raise TembedError(
            f"the network returns logits of shape {tuple(logits.shape)}, and `num_classes` is {num_classes}: give the "
            "number of its classes, or a network whose head has that many"
        )


def _find(model: nn.Module, at: str, run: DryRun, **given: Any) -> FeatureLayout:
    """The layout of the submodule's output. Raises an error that lists the candidates if the block cannot go there."""
    layers = layers_of(model, run)
    modules = dict(model.named_modules())
    if not at or at not in modules:
        near = difflib.get_close_matches(at, [layer.name for layer in layers], n=1)
        raise refuse(at, "there is no such submodule" + (f" (did you mean {near[0]!r}?)" if near else ""), layers)
    if isinstance(modules[at], torch.jit.ScriptModule):
        raise refuse(at, "it is a TorchScript module, whose class cannot be extended", layers)
    if at not in run.seen:
        raise refuse(at, "it is never called", layers)
    if run.seen[at].calls > 1:
        raise refuse(at, f"it is called {run.seen[at].calls} times", layers)
    found = layout_of(model, run, at, **given)
    if isinstance(found, str):
        raise refuse(at, found, layers)
    return found


def _is_ignored(model: nn.Module, at: str, layout: FeatureLayout, example: Tensor) -> bool:
    """Whether the logits do not depend on the map: replacing it by NaN leaves them finite.

    Unlike a gradient, NaN also passes through weights that are zero, such as those of a new head.
    """

    def poison(module: nn.Module, inputs: Any, value: Tensor) -> Tensor:
        return layout.from_map(torch.full_like(layout.to_map(value), math.nan), value)

    try:
        logits = logits_of(call(model, example, {at: poison}))
    except Exception:  # the rest of the network refuses NaN, so it reads the map
        return False
    return not bool(logits.isnan().any())


def _warn(message: str) -> None:
    warnings.warn(message, AttachWarning, stacklevel=3)
