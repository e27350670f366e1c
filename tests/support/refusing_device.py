"""A device that refuses what CUDA refuses when only deterministic operations are allowed. It computes on the CPU.

What CUDA refuses is documented at ``torch.use_deterministic_algorithms``. Products of matrices are refused unless
``CUBLAS_WORKSPACE_CONFIG`` is set before CUDA starts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "refusing"
REFUSED = ("aten.nll_loss2d_forward.", "aten.mm.", "aten.addmm.", "aten.bmm.", "aten.mv.")


class Remote(Tensor):
    """A tensor that says that it is on the device, and holds its values in ``inner``."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Remote":
        made = Tensor._make_wrapper_subclass(
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=torch.device(NAME, 0)
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


def run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation. Its result is on the device that is asked for, or else on that of the arguments."""
    asked = kwargs.get("device")
    has_remote = any(isinstance(one, Remote) for one in tree_leaves((args, kwargs)))
    stays = has_remote if asked is None else torch.device(asked).type == NAME
    if has_remote and torch.are_deterministic_algorithms_enabled() and str(operation).startswith(REFUSED):
        raise RuntimeError(f"{operation} does not have a deterministic implementation")
    if stays and asked is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    args_here, kwargs_here = tree_map(lambda one: one.inner if isinstance(one, Remote) else one, (args, kwargs))
    result = operation(*args_here, **kwargs_here)
    if not stays:
        return result
    result = tree_map(lambda one: Remote(one) if isinstance(one, Tensor) else one, result)
    return return_and_correct_aliasing(operation, args, kwargs, result) if has_remote else result


class _Mode(TorchDispatchMode):
    """Catches operations without a tensor of the device, such as copies to it."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


@contextmanager
def refusing_device() -> Iterator[torch.device]:
    """The device, on which modules and tensors can be put within the ``with``."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        _setup_privateuseone_for_python_backend(NAME)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with _Mode():
            yield torch.device(NAME, 0)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
