"""A GPU made of Python: it computes on the CPU, counts what a GPU would wait for, and refuses what a GPU refuses.

Tensors on the device hold their values in a tensor of the CPU, so results have the CPU's bits. It rests on torch's
experimental interface for devices in Python. The device has to be there before torch computes its first gradient, so
tests on it run in a process of their own: `on_fake_device`.

It refuses

- operands on different devices,
- float64, as MPS does,
- what CUDA refuses under ``torch.use_deterministic_algorithms``, where torch documents it. Products of matrices are
  refused unless ``CUBLAS_WORKSPACE_CONFIG`` is set before CUDA starts.
"""

import functools
import importlib.util
import inspect
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

import tembed
from tembed.trained import determinism

NAME = "fake"
PACKAGE = str(Path(tembed.__file__).parent)
NOT_DETERMINISTIC = (
    *("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.mv."),
    *("aten.nll_loss2d_forward.", "aten._adaptive_avg_pool2d_backward.", "aten.upsample_bilinear2d_backward."),
    *("aten.upsample_bicubic2d_backward.", "aten.histc.", "aten.median.dim", "aten.kthvalue.", "aten.put_."),
)
SHAPED_BY_VALUES = ("aten.nonzero.", "aten.masked_select.", "aten._unique", "aten.unique", "aten.bincount.")
READS = ("aten._local_scalar_dense.", "aten.equal.", "aten.is_nonzero.", *SHAPED_BY_VALUES)
NO_LAUNCH = ("aten.empty", "aten.new_empty", "aten.detach", "aten.lift_fresh", "aten._unsafe_view", *READS)


@dataclass
class Counts:
    """What the host did with the device, each by operation or by line of the package.

    ``reads``: the host waited for a value or a copy. ``copies``: tensors that were sent to the device.
    """

    launches: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)


class OnDevice(Tensor):
    """A tensor that says that it is on the device, and holds its values in ``inner``."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnDevice":
        made = Tensor._make_wrapper_subclass(
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=torch.device(NAME, 0)
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Device.current.run(operation, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        return memo.setdefault(id(self), copied)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnDevice({self.inner})"


class Device(TorchDispatchMode):
    """Runs every operation. Within the ``with``, it also sees those without a tensor of the device, such as copies."""

    current: "Device"

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(operation, args, kwargs or {})

    def run(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation. Its result is on the device that is asked for, or else on that of the operands."""
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        remote = any(isinstance(one, OnDevice) for one in tensors)
        asked = kwargs.get("device")
        stays = remote if asked is None else torch.device(asked).type == NAME
        if not remote and not stays:
            return operation(*args, **kwargs)
        self._count(str(operation), args, kwargs, tensors, stays)
        if stays and asked is not None:
            kwargs = kwargs | {"device": torch.device("cpu")}
        here, options = tree_map(lambda one: one.inner if isinstance(one, OnDevice) else one, (args, kwargs))
        result = operation(*here, **options)
        if not stays or (str(operation).startswith("aten.copy_.") and not isinstance(args[0], OnDevice)):
            return result
        if any(isinstance(one, Tensor) and one.dtype == torch.float64 for one in tree_leaves(result)):
            raise TypeError(f"{operation}: the device has no float64")
        result = tree_map(lambda one: OnDevice(one) if isinstance(one, Tensor) else one, result)
        return return_and_correct_aliasing(operation, args, kwargs, result) if remote else result

    def _count(self, name: str, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], stays: bool) -> None:
        """Count an operation with a tensor of the device or a result on it, or refuse it."""
        if torch.are_deterministic_algorithms_enabled() and name.startswith(NOT_DETERMINISTIC):
            raise RuntimeError(f"{name} does not have a deterministic implementation")
        local = [one for one in tensors if not isinstance(one, OnDevice)]
        if name.startswith(("aten.copy_.", "aten._to_copy.")):
            source = args[-1]
            target_is_remote = isinstance(args[0], OnDevice) if name.startswith("aten.copy_.") else stays
            if not isinstance(source, OnDevice):
                blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
                self.counts.copies[f"{source.dtype} {'blocking' if blocking else 'ahead'} {_line()}"] += 1
                return
            if not target_is_remote:
                self.counts.reads[_line()] += 1
                return
        elif any(one.ndim for one in local):
            if not name.startswith(("aten.index.", "aten.index_put")):
                raise RuntimeError(f"{name}: expected all tensors to be on the same device ({_line()})")
            self.counts.copies[f"index {_line()}"] += 1
        chosen = name.startswith(("aten.index.", "aten.index_put")) and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if chosen or name.startswith(READS):
            self.counts.reads[_line()] += 1
        if not name.startswith(NO_LAUNCH) and not _is_view(name):
            self.counts.launches[name] += 1


@functools.cache
def _is_view(name: str) -> bool:
    """Whether an operation only looks at its operand in another way."""
    packet, overload = name.removeprefix("aten.").split(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload) if name.startswith("aten.") else None
    return operation is not None and operation.is_view


def _line() -> str:
    """The line of the package that is running, or else of what called torch."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename.removeprefix(PACKAGE + os.sep)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "outside the package"


class Backend(backend_registration._DummyBackendModule):
    """The module ``torch.fake``. ``free``: bytes of memory that the device reports as free."""

    free = 1 << 30

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.free, 1 << 34


BACKEND = Backend()


class Generator:
    """`torch.Generator`, which torch does not make for a device in Python: the CPU's takes its place."""

    made = torch.Generator

    def __new__(cls, device: Any = "cpu") -> torch.Generator:  # type: ignore[misc]
        return cls.made("cpu" if torch.device(device).type == NAME else device)


@contextmanager
def fake_device() -> Iterator[Device]:
    """Within the ``with``, modules and tensors can be put on the device ``fake``, and runs choose it."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        backend_registration._setup_privateuseone_for_python_backend(NAME, BACKEND)
    with pytest.MonkeyPatch.context() as patch, Device() as device:
        patch.setattr(Device, "current", device, raising=False)
        patch.setattr(torch, "Generator", Generator)
        patch.setitem(determinism.GPUS, NAME, lambda: True)
        before = torch.__future__.get_swap_module_params_on_conversion(), torch._C._only_lift_cpu_tensors()
        torch.__future__.set_swap_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)  # so that torch.tensor copies from the CPU, as to a GPU
        try:
            yield device
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before[0])
            torch._C._set_only_lift_cpu_tensors(before[1])


@contextmanager
def counted() -> Iterator[Counts]:
    """What happens on the device within the ``with``."""
    before, Device.current.counts = Device.current.counts, Counts()
    try:
        yield Device.current.counts
    finally:
        Device.current.counts = before


# --- tests in a process with the device


def on_fake_device(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in the process with the device. Its arguments must be values that can be pickled."""

    @pytest.mark.process
    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        _process().submit(_run, inspect.getfile(test), test.__name__, arguments, dict(os.environ)).result()

    return run


@functools.cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _run(file: str, name: str, arguments: dict[str, Any], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    with fake_device():
        getattr(_module(file), name).__wrapped__(**arguments)


@functools.cache
def _module(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
