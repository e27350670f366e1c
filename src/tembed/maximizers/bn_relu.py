"""BN-ReLU, read as a soft maximizer of P1 (§3.2)."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tembed.errors import TembedError
from tembed.ops import bn_relu as kernel


class Affine(NamedTuple):
    """A normalisation by the statistics of a batch as ``x * scale + shift``, with what its gradient needs."""

    mean: Tensor
    scale: Tensor
    shift: Tensor
    invstd: Tensor


class BNReLU(nn.BatchNorm2d):
    """Batch normalisation and ReLU in one module; the maximizer that networks usually have.

    In training, a channels-last map in float32 on the CPU goes through ``kernels/bn_relu.c``, which reads and writes
    the map half as often.
    """

    def normalize(self, a: Tensor) -> Tensor:
        """The normalised activations, before the ReLU."""
        return super().forward(a)

    def forward(self, input: Tensor) -> Tensor:
        if self.has_kernel(input):
            return BNReLUFunction.apply(self, input, self.weight, self.bias)
        return F.relu_(self.normalize(input))

    def with_input(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """BN-ReLU of a map, and the map itself for a shortcut around it: their gradients meet in the same kernel."""
        if self.has_kernel(a) and not has_listeners(self):
            return BNReLUWithInput.apply(self, a, self.weight, self.bias)
        return self(a), a

    def has_kernel(self, a: Tensor) -> bool:
        """Whether the fused kernel takes this map."""
        usual = self.follows_batch and not torch.jit.is_tracing()
        alike = usual and (a.dtype, a.device) == (self.weight.dtype, self.weight.device)
        return alike and kernel.fits(a) and kernel.load() is not None

    @property
    def follows_batch(self) -> bool:
        """Whether this is batch normalisation as it usually is in training, in a program that is not being compiled."""
        usual = self.affine and self.track_running_stats and self.momentum is not None
        return self.training and usual and not torch.compiler.is_compiling()

    def follow(self, mean: Tensor, variance: Tensor, count: int) -> Affine:
        """The normalisation by these statistics of ``count`` values a channel; the running ones move towards them."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        invstd = (variance + self.eps).rsqrt_()
        scale = self.weight * invstd
        return Affine(mean, scale, torch.addcmul(self.bias, mean, scale, value=-1), invstd)


def has_listeners(module: nn.Module) -> bool:
    """Whether a hook waits for a call of the module, so that nothing may go past it."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


class BNReLUFunction(torch.autograd.Function):
    """``relu(bn(x))`` with the statistics of the batch; keeps the map, and finds the rest again from it."""

    @staticmethod
    def forward(ctx: Any, bn: BNReLU, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        library = kernel.load()
        assert library is not None
        affine = bn.follow(*kernel.statistics(library, x), x.numel() // x.shape[1])
        ctx.save_for_backward(x, *affine)
        return kernel.forward(library, x, affine.scale, affine.shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        library = kernel.load()
        assert library is not None
        return None, *kernel.backward(library, g, *ctx.saved_tensors)


class BNReLUWithInput(torch.autograd.Function):
    """``relu(bn(x))`` and ``x``."""

    @staticmethod
    def forward(ctx: Any, bn: BNReLU, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return BNReLUFunction.forward(ctx, bn, x, weight, bias), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, other: Tensor) -> tuple[Tensor | None, ...]:
        library = kernel.load()
        assert library is not None
        x, mean, scale, shift, invstd = ctx.saved_tensors
        return None, *kernel.backward(library, g, x, mean, scale, shift, invstd, other)


def implied_margin(bn: nn.BatchNorm2d) -> Tensor:
    """The threshold of each kernel, ``mu_k = E[a_k] - beta_k sqrt(Var a_k) / gamma_k``, from the running statistics."""
    if bn.running_mean is None or bn.running_var is None or not bn.affine:
        raise TembedError(f"{bn} has no running statistics or no scale to read a margin from")
    return bn.running_mean - bn.bias * (bn.running_var + bn.eps).sqrt() / bn.weight
