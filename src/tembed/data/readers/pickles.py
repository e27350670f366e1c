"""Reads the pickles in which CIFAR and Mini-ImageNet are published, without running anything in them.

The result has only arrays, strings, numbers, lists and dictionaries. A pickle names the functions that rebuild its
arrays. Here each of those few names leads to a stand-in that only builds a plain array, and any other name is refused.
This uses the unpickler written in Python, which is slow but memory-safe: the one written in C allocates whatever a
damaged file asks for.
"""

import pickle
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tembed.errors import TembedError, one_line

MAX_DEPTH = 4
_DTYPE = re.compile(r"[|<>=]?([uif][1248]|b1)")


def read_pickle(stream: IO[bytes], size: int, where: str) -> dict[str, Any]:
    """The dictionary in a pickle of ``size`` bytes; ``where`` names it in errors."""
    try:
        found = _plain(_Reader(_Bounded(stream, size)).load(), {}, 0)
        if stream.read(1):  # reading to the end also makes an archive verify its checksum
            raise EOFError("it has extra bytes at the end")
    except _Refused as error:
        raise TembedError(
            f"{where} is a pickle that contains {error}; only arrays, strings, numbers and lists are read, "
            "and nothing in it was run: take a copy from a source you trust"
        ) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise TembedError(
            f"{where} is damaged or not a pickle ({one_line(str(error)) or type(error).__name__}): fetch a fresh copy"
        ) from None
    if not isinstance(found, dict):
        raise TembedError(f"{where} contains a {type(found).__name__}, not a dictionary: is it the right file?")
    return found


class _Refused(Exception):
    """What a pickle contains that is not allowed."""


class _Dtype:
    """Stands in for `numpy.dtype`; only plain numbers are allowed."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *_: Any) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            raise _Refused(f"an array of {text!r}")
        self.code = text

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order in ("<", ">"):
            self.code = order + self.code.lstrip("|<>=")


class _Array:
    """Stands in for `numpy.ndarray`."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        shape, dtype, fortran, data = state[-4:]
        self.array = _build(data, dtype, shape, "F" if fortran else "C")


class _Maker:
    """A stand-in for a named function, without attributes that a pickle could set."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a function with changed state")


def _build(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes | bytearray):
        raise _Refused("an array that is not plain numbers")
    return np.frombuffer(data, np.dtype(dtype.code)).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any, data: Any) -> Any:
    return _build(data, dtype, (1,), "C")[0].item()


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.array = _build(data, dtype, shape, order)
    return made


def _latin1(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
        raise _Refused("an unusual encoding")
    return text.encode("latin1")


def _stand_ins() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): _Maker(_Array),
        ("numpy", "dtype"): _Maker(_Dtype),
        ("_codecs", "encode"): _Maker(_latin1),
    }
    for core in ("numpy.core", "numpy._core"):
        found[f"{core}.multiarray", "_reconstruct"] = _Maker(lambda *_: _Array())
        found[f"{core}.multiarray", "scalar"] = _Maker(_scalar)
        found[f"{core}.numeric", "_frombuffer"] = _Maker(_from_buffer)
    return found


class _Bounded:
    """A stream that refuses to read more bytes than are left."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream, self.left = stream, size

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise EOFError("it ends too early")
        self.left -= count
        return self.stream.read(count)

    def readinto(self, buffer: bytearray) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self) -> bytes:
        line = self.stream.readline(1 << 20)
        self.left -= len(line)
        return line


class _Reader(pickle._Unpickler):
    def __init__(self, stream: _Bounded) -> None:
        super().__init__(stream, encoding="bytes")
        self.stand_ins = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.stand_ins:
            raise _Refused(one_line(f"{module}.{name}"[:100]))
        return self.stand_ins[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a reference to another object")


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    """Replace stand-ins by their arrays and dictionary keys by text; each object is visited once."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) in done:
        return done[id(value)]
    if depth > MAX_DEPTH:
        raise _Refused(f"lists nested more than {MAX_DEPTH} deep")
    made: Any
    if isinstance(value, _Array):
        if value.array is None:
            raise _Refused("an array without numbers")
        made = value.array
    elif isinstance(value, list | tuple):
        made = [_plain(item, done, depth + 1) for item in value]
    elif isinstance(value, dict):
        made = {_text(key): _plain(item, done, depth + 1) for key, item in value.items()}
    else:
        raise _Refused(f"a {type(value).__name__.lstrip('_')}")
    done[id(value)] = made
    return made


def _text(key: Any) -> str:
    if isinstance(key, bytes):
        return one_line(key.decode("utf-8", "backslashreplace"))
    if isinstance(key, str | int):
        return one_line(str(key).encode("utf-8", "backslashreplace").decode("utf-8"))
    raise _Refused(f"a dictionary key of type {type(key).__name__}")
