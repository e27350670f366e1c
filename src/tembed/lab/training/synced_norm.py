"""Batch normalisation over the batch of all processes: torch's own on GPUs, and ours on CPUs, which torch's refuses."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tembed.common.errors import TembedError

PIXELS = (0, 2, 3)


def synchronise(model: nn.Module, device: torch.device) -> None:
    """Make every batch normalisation of a model use the whole batch. Parameters, buffers and names do not change.

    ``device`` is where the model will train.

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
    if device.type != "cpu":
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return
    for _, norm in found:
        norm.__class__ = SyncedNorm


class SyncedNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over the batch of all processes, whose shares may have unequal sizes."""

    @torch.compiler.disable  # communication stays outside compiled code
    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        here = x.new_tensor([x.numel() // x.shape[1]])
        total, count = Sum.apply(torch.cat([x.sum(PIXELS), here])).split([x.shape[1], 1])
        centred = x - (mean := total / count)[:, None, None]
        var = Sum.apply(centred.square().sum(PIXELS)) / count  # a mean of squares would lose digits to cancellation
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((var * count / (count - 1)).to(self.running_var.dtype), self.momentum)
            self.num_batches_tracked.add_(1)
        scale = self.weight * (var + self.eps).rsqrt()
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


class Sum(torch.autograd.Function):
    """The sum of a tensor over all processes. Its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Sum.apply(grad)
