"""A network with the block behind one of its submodules (§3.3), for any `torch.nn.Module`.

The submodule's class is exchanged for a generated subclass that passes its output through the block, as
`torch.nn.utils.parametrize` does. Names, ``isinstance`` and state dicts of the network survive, and no hook is needed.
"""

import copyreg
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tembed.attachment.dry_run import check_module
from tembed.attachment.feature_maps import FeatureLayout
from tembed.block import BlockSteps, DeepSupervision, FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.images.pixels import resized
from tembed.loss import EmbeddingLoss
from tembed.models.description import Description
from tembed.models.network import Output, Trace
from tembed.paper import LAMBDA

Block = FeatureEmbedding | DeepSupervision
BLOCK_CALL = "_tembed_block_call"
"""Name of the attribute of an exchanged submodule that leads to the block."""


class FeaturesReached(Exception):
    """Ends a forward pass at the submodule; carries the map that the block would read."""

    def __init__(self, f: Tensor):
        super().__init__()
        self.f = f


class BlockCall:
    """Passes a submodule's output through the block, and keeps the scores until the forward pass ends.

    ``block``: None to leave the output as it is. ``mode``: what the forward pass that is under way is for;
    ``""`` outside of one, where nothing is kept (activation checkpointing calls the submodule again in backward).
    """

    def __init__(self, block: Block | None, layout: FeatureLayout):
        self.block, self.layout = block, layout
        self.mode = ""
        self.calls = 0
        self.f: Tensor | None = None
        self.steps: BlockSteps | None = None

    def __call__(self, value: Tensor) -> Tensor:
        f = self.layout.to_map(value)
        if self.mode == "features":
            if not torch.compiler.is_compiling():  # a compiler drops what follows, and cannot trace past an exception
                raise FeaturesReached(f)
            self.calls, self.f = self.calls + 1, f
            return value
        if self.block is None:
            steps = BlockSteps(f, None, None, None)
        else:
            check_single(self.block, f, "give larger batches or images")
            steps = self.block.steps(f) if self.mode == "trace" else self._call_block(f)
        if self.mode:
            self.calls += 1
            self.steps = steps
            if self.mode == "trace":
                self.f = f
        changed = value if self.block is None else self.layout.from_map(steps.features, value)
        # What follows may work in place. It must change neither the maps of a trace nor what the scores are made from.
        kept = self.mode == "trace" or (changed is value and self.block is not None)
        return changed.clone() if kept else changed

    def _call_block(self, f: Tensor) -> BlockSteps:
        """The block's result by a call of the module, so that its hooks see it."""
        assert self.block is not None
        features, scores = self.block(f)
        return BlockSteps(features, scores, None, None)

    def start(self, mode: str) -> None:
        self.mode, self.calls, self.f, self.steps = mode, 0, None, None

    def end(self) -> None:
        self.start("")


def check_single(block: Block, f: Tensor, way_out: str) -> None:
    """Refuse to train on a single patch of a single image, which batch normalisation cannot do."""
    if not (block.training and f.shape[0] * f.shape[2] * f.shape[3] == 1):
        return
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in block.modules()):
        raise TembedError(
            "the block cannot train on one image whose map is a single patch, because a single value has no "
            f"variance: {way_out}"
        )


def exchange_class(module: nn.Module, block_call: BlockCall) -> None:
    """Make the module pass its output through the block."""
    original = type(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[BLOCK_CALL](original.forward(self, *args, **kwargs))

    def reduce(self: nn.Module, protocol: Any) -> Any:
        """Pickle and copy by the original class, because no module holds the generated one."""
        reduced: Any = original.__reduce_ex__(self, protocol)
        function, arguments, *state = reduced
        if function is not copyreg.__newobj__:  # type: ignore[attr-defined]
            raise TembedError(f"{original.__name__} has its own way of pickling: detach the block to copy it")
        return (_exchanged, (original, *arguments[1:]), *state)

    name = f"{original.__name__}WithBlock"
    module.__class__ = type(name, (original,), {"forward": forward, "__reduce_ex__": reduce})
    module.__dict__[BLOCK_CALL] = block_call


def _exchanged(original: type[nn.Module], *arguments: Any) -> nn.Module:
    """An empty module of the generated subclass; its state comes after."""
    module = original.__new__(original, *arguments)
    module.__dict__ = {}
    exchange_class(module, None)  # type: ignore[arg-type]
    return module


def restore_class(module: nn.Module) -> None:
    """Undo `exchange_class`."""
    module.__class__ = type(module).__bases__[0]
    del module.__dict__[BLOCK_CALL]


def is_exchanged(module: nn.Module) -> bool:
    return BLOCK_CALL in module.__dict__


class NamedOutput(dict[str, Tensor]):
    """`Output` in the form that Hugging Face's tools read: ``loss`` if there were labels, ``logits``, and ``scores``.

    Its entries are also attributes. Entries that are None are left out; as attributes they are None.
    """

    def __init__(self, output: Output, loss: Tensor | None):
        found = {"loss": loss, "logits": output.logits, "scores": output.scores}
        super().__init__({name: value for name, value in found.items() if value is not None})

    def __getattr__(self, name: str) -> Tensor | None:
        if name not in ("loss", "logits", "scores"):
            raise AttributeError(name)
        return self.get(name)


class Attached(nn.Module):
    """A network with the block behind its submodule ``at``. Images ``(N, channels, H, W)`` to `Output`.

    ``model`` is the original network, and ``block`` the block, or None. `detach` gives the original back. Set
    ``image_size`` to resize the images to this shorter side first. ``loss_weight`` is lambda (Eq. 3.1) in the loss of a
    call with ``labels``.
    """

    image_size: int | None = None
    loss_weight = LAMBDA
    description = Description()

    def __init__(
        self,
        model: nn.Module,
        at: str,
        block: Block | None,
        layout: FeatureLayout,
        num_classes: int,
        block_options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.at, self.layout, self.num_classes = at, layout, num_classes
        self.block_options = dict(block_options or {})
        """what `attach` was given to make the block"""
        self.model = model
        self.block = block
        self.block_call = BlockCall(block, layout)
        exchange_class(model.get_submodule(at), self.block_call)
        self.training = model.training

    def forward(
        self, *inputs: Any, pixel_values: Tensor | None = None, labels: Tensor | None = None, **named: Any
    ) -> Any:
        """`Output`. A call with ``pixel_values`` or ``labels``, as Hugging Face's `Trainer` makes it: `NamedOutput`."""
        if pixel_values is None and labels is None:
            return self._forward(*inputs, **named)
        if pixel_values is not None:
            (named["pixel_values"],) = self._prepared(pixel_values)
        output = self._forward(*inputs, **named)
        loss = EmbeddingLoss(0 if output.scores is None else self.loss_weight)
        return NamedOutput(output, None if labels is None else loss(output, labels))

    def _forward(self, *inputs: Any, **named: Any) -> Output:
        inputs = self._prepared(*inputs)
        block_call = self.block_call
        block_call.start("forward")
        try:
            logits = logits_of(self.model(*inputs, **named))
            return Output(logits, self._scores())
        finally:
            block_call.end()

    def trace(self, x: Tensor) -> Trace:
        """The same computation as `forward`, with the intermediate maps as ``(N, channels, H, W)``."""
        (x,) = self._prepared(x)
        block_call = self.block_call
        block_call.start("trace")
        try:
            logits = logits_of(self.model(x))
            scores, f, steps = self._scores(), block_call.f, block_call.steps
            assert f is not None
            assert steps is not None
            softmax = None if scores is None else scores.softmax(1)
            return Trace(f, scores, softmax, steps.mixing, steps.embedding, steps.features, logits)
        finally:
            block_call.end()

    def features(self, x: Tensor) -> Tensor:
        """The map that the block reads, ``(N, channels, H, W)``. The rest of the network is not computed."""
        if torch.compiler.is_exporting():  # torch follows the calls of submodules, and must see every one return
            return self.trace(x).block_input
        (x,) = self._prepared(x)
        block_call = self.block_call
        block_call.start("features")
        try:
            self.model(x)
            f = block_call.f
        except FeaturesReached as reached:
            f = reached.f
        finally:
            block_call.end()
        if f is None:
            raise TembedError(self._miscalled())
        return f

    def extra_repr(self) -> str:
        return f"at={self.at!r}, layout={self.layout}, num_classes={self.num_classes}"

    def _scores(self) -> Tensor | None:
        """The scores that were kept during this forward pass."""
        steps = self.block_call.steps
        if self.block_call.calls != 1 or steps is None:
            raise TembedError(self._miscalled())
        if self.block is None:
            return None
        scores, trained = steps.scores, self.block.match.score.weight.requires_grad
        if scores is not None and torch.is_grad_enabled() and trained and not scores.requires_grad:
            raise TembedError(
                f"the scores of the block behind {self.at!r} have no gradient, because the network calls it inside "
                "torch.no_grad or a reentrant checkpoint: remove that, or use torch.utils.checkpoint with "
                "use_reentrant=False"
            )
        return scores

    def _miscalled(self) -> str:
        if not is_exchanged(self.model.get_submodule(self.at)):
            return f"the block was detached from {self.at!r}: call the original network, or attach it again"
        times = "not called" if self.block_call.calls == 0 else f"called {self.block_call.calls} times"
        return (
            f"the submodule {self.at!r} was {times} in this forward pass, and the block needs exactly one call: attach "
            "it behind another submodule (tembed.list_layers names them)"
        )

    def _prepared(self, *inputs: Any) -> tuple[Any, ...]:
        """The inputs, the images among them resized. Refuses images whose tokens do not tell their grid."""
        if not inputs or not isinstance(inputs[0], Tensor) or inputs[0].ndim != 4:
            return inputs
        x = inputs[0]
        if self.image_size is not None:
            x = resized(x, self.image_size, "bilinear")
        if self.layout.kind == "tokens" and self.layout.grid is None and x.shape[2] != x.shape[3]:
            # Their number may be a square by chance: 2x8 tokens are not 4x4.
            raise TembedError(
                f"the images are {x.shape[2]}x{x.shape[3]}, and the block was attached to a square grid of tokens: "
                "attach it with `grid`"
            )
        return (x, *inputs[1:])


def logits_of(output: Any) -> Tensor:
    """The logits in what a network returns: a tensor, something with ``.logits``, or a tuple that begins with them."""
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, tuple | list) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        raise TembedError(
            f"the network returns a {type(output).__name__}, but its logits must be a tensor, the attribute logits, or "
            "the first entry of a tuple: wrap it in a module that returns them"
        )
    return logits


class _WithScores(torch.autograd.Function):
    """The logits, unchanged. The scores join their graph with a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], torch.zeros_like(ctx.saved_tensors[0])


class LogitsOnly(nn.Module):
    """A view of a network that returns the logits alone. ``model`` is the network itself, not a copy.

    The scores are part of the logits' graph, so that tools can differentiate with respect to both outputs of the block.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        output = self.model(*inputs, **named)
        logits, scores = logits_of(output), getattr(output, "scores", None)
        return logits if scores is None else _WithScores.apply(logits, scores)


def logits_only(model: nn.Module) -> LogitsOnly:
    """A view of any network of this package that returns a tensor of logits, for tools that expect one.

    It shares the network's weights and submodules: ``view.model`` is the network, and ``view.model.stage3`` a layer
    for captum or pytorch-grad-cam. ``view.train()`` and ``view.eval()`` switch the network too.
    """
    check_module(model)
    return LogitsOnly(model)
