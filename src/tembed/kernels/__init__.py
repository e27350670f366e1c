"""Fast forms of what the networks spend their time on. Each replaces a plain torch form and gives the same result.

The kernels in ``csrc`` are for the CPU and are compiled on first use; the exact P2 has a Triton kernel for GPUs, too.
Where no kernel applies (other device, type or layout, no compiler), the plain form runs instead.
"""

from tembed.kernels import exact_p2 as perturbed
from tembed.kernels import fused_bn_relu as bn_relu


def available() -> dict[str, bool]:
    """Whether each C kernel is compiled and in use here, by the name of its C file."""
    return {kernel.name: kernel.load() is not None for kernel in (bn_relu.KERNEL, perturbed.KERNEL)}
