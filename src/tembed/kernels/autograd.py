"""Second derivatives and hooks: what a fused form must not lose compared with its plain form."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module does more than its class's ``forward``, so that a fused form must not skip it."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or "forward" in vars(module) or _has_any_global_hook()


def wants_double_backward() -> bool:
    """Inside a ``backward``: whether its result will be differentiated again (``create_graph=True``)."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def torch_gradients(
    plain: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor | None], *grads: Tensor
) -> list[Tensor | None]:
    """The gradients of ``plain(*inputs)`` by torch, which can be differentiated again.

    A ``backward`` calls this if `wants_double_backward`, because autograd cannot differentiate the kernels.
    """
    # An alias for each input, because one input may depend on another (shared weights): the gradient for an input must
    # not include what flows through the others.
    aliases = [None if x is None else x.view_as(x) for x in inputs]
    wanted = [x for x in aliases if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(plain(*aliases), wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in aliases]
