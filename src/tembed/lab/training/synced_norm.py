"""Batch normalisation over the batch of all processes, on any device (torch's own refuses CPU tensors).

The processes exchange count, mean and variance of their shares, not sums of squares, which would lose digits to
cancellation. Shares may have unequal sizes.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tembed.common.errors import TembedError

PIXELS = (0, 2, 3)


def synchronise(model: nn.Module) -> None:
    """Make every batch normalisation of a model use the whole batch. Parameters, buffers and names do not change.

    Raises `TembedError` for a class of its own, which may do more than normalise, such as timm's `BatchNormAct2d`.
    """
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]
    for name, norm in found:
        usual = norm.affine and norm.track_running_stats and norm.momentum is not None
        if type(norm) not in (nn.BatchNorm2d, SyncedNorm) or not usual:
            raise TembedError(
                f"{name or 'the network'} is a {type(norm).__name__} whose statistics several processes cannot share: "
                "train on one device"
            )
    for _, norm in found:
        norm.__class__ = SyncedNorm


class SyncedNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over the batch of all processes."""

    def forward(self, input: Tensor) -> Tensor:
        return normalise(self, input) if self.training else super().forward(input)


@torch.compiler.disable  # communication stays outside compiled code
def normalise(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """``x`` normalised by the statistics of all processes. Updates the running statistics."""
    y, mean, var, count = NormFunction.apply(x, norm.weight, norm.bias, norm.eps)
    with torch.no_grad():
        for running, now in ((norm.running_mean, mean), (norm.running_var, var * (count / (count - 1)))):
            assert running is not None
            assert norm.momentum is not None
            running.lerp_(now.to(running.dtype), norm.momentum)
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
    return y


class NormFunction(torch.autograd.Function):
    """Normalisation with the moments of all processes; also returns mean, variance and count."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        mean, var, count = moments(x)
        y = F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt(), count)
        ctx.mark_non_differentiable(mean, var, count)
        return y, mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        g = g.to(mean.dtype)
        centred = (x.to(mean.dtype) - _map(mean)).mul_(_map(scale))
        bias_grad, weight_grad = g.sum(PIXELS), (g * centred).sum(PIXELS)
        both = torch.cat([bias_grad, weight_grad])
        dist.all_reduce(both)
        of_g, of_product = (both / count).chunk(2)
        x_grad = (g - _map(of_g)).addcmul_(centred, _map(of_product), value=-1).mul_(_map(weight * scale))
        return x_grad.to(x.dtype), weight_grad.to(weight.dtype), bias_grad.to(weight.dtype), None


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and number of the values per channel, over all processes; at least in single precision."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    var, mean = torch.var_mean(x, PIXELS, correction=0)
    count = mean.new_tensor([x.numel() // x.shape[1]])
    own = torch.cat([mean, var, count])
    shares = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, own)
    table = torch.stack(shares)
    means, variances, counts = table.split([len(mean), len(mean), 1], dim=1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    var = ((variances + (means - mean).square()) * counts).sum(0) / total
    return mean, var, total


def _map(vector: Tensor) -> Tensor:
    return vector[:, None, None]
