"""Reads the pickles in which CIFAR and Mini-ImageNet are published, without running anything in them.

The result has only arrays, strings, numbers, lists and dictionaries. A pickle names the functions that rebuild its
arrays. Here each of those few names leads to a stand-in that only builds a plain array, and any other name is refused.
This uses the unpickler written in Python, which is slow but memory-safe: the one written in C allocates whatever a
damaged file asks for. What it may take is bounded by the bytes of the file and by a number of steps, and only text,
bytes and short integers are hashed, because the hash of deeply nested tuples overflows the stack.
"""

import io
import pickle
import re
import struct
from collections.abc import Callable
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from tembed.common.errors import TembedError, one_line

MAX_DEPTH = 4
MAX_STEPS = 2_000_000  # an object of a few hundred bytes each; CIFAR-100 takes 0.2 million
MAX_KEY = 1000  # characters
MAX_BITS = 64  # of a number: hashing a longer one takes long, each time
_DTYPE = re.compile(r"[|<>=]?([uif][1248]|b1)")


def read_pickle(stream: IO[bytes], size: int, where: str) -> dict[str, Any]:
    """The dictionary in a pickle of ``size`` bytes; ``where`` names it in errors."""
    buffered = io.BufferedReader(cast(io.RawIOBase, stream))  # a zip takes long to give a single byte
    try:
        found = _plain(_Reader(_Bounded(buffered, size)).load(), {}, 0)
        if buffered.read(1):  # reading to the end also makes an archive verify its checksum
            raise EOFError("it has extra bytes at the end")
    except _Refused as error:
        raise TembedError(
            f"{where} is a pickle that contains {error}; only arrays, strings, numbers and lists are read, "
            "and nothing in it was run: take a copy from a source you trust"
        ) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise TembedError(
            f"{where} is damaged or not a pickle ({one_line(str(error)[:200]) or type(error).__name__}): fetch a fresh "
            "copy"
        ) from None
    finally:
        buffered.detach()  # otherwise it would close the stream
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
            raise _Refused(f"an array of {one_line(text[:20]) if isinstance(text, str) else type(text).__name__}")
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


class _Latin1:
    """Stands in for ``_codecs.encode``, which turns the text of old protocols into bytes.

    Each text in a file is encoded once, so all of them together are no longer than the file.
    """

    def __init__(self, size: int) -> None:
        self.left = size

    def __call__(self, text: Any, codec: Any) -> bytes:
        if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
            raise _Refused("an unusual encoding")
        self.left -= len(text)
        if self.left < 0:
            raise _Refused("more bytes than the file has")
        return text.encode("latin1")


def _stand_ins(size: int) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): _Maker(_Array),
        ("numpy", "dtype"): _Maker(_Dtype),
        ("_codecs", "encode"): _Maker(_Latin1(size)),
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

    def readline(self) -> bytes:
        line = self.stream.readline(1 << 20)
        self.left -= len(line)
        return line


class _Steps(dict[int, Callable[[Any], None]]):
    """What each opcode does; counts how many are looked up."""

    taken = 0

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.taken += 1
        if self.taken > MAX_STEPS:
            raise _Refused(f"more than {MAX_STEPS:,} steps")
        return super().__getitem__(code)


class _Reader(pickle._Unpickler):
    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]

    def __init__(self, stream: _Bounded) -> None:
        super().__init__(stream, encoding="bytes")
        self.stand_ins = _stand_ins(stream.left)
        self.dispatch = _Steps(pickle._Unpickler.dispatch | _SAFE)  # type: ignore[misc]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.stand_ins:
            raise _Refused(one_line(f"{module}.{name}"[:100]))
        return self.stand_ins[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a reference to another object")


def _with_keys(code: bytes, first: int) -> Callable[[_Reader], None]:
    """What the standard library does, after a check of the keys: every second object on the stack from ``first`` on."""
    load: Callable[[Any], None] = pickle._Unpickler.dispatch[code[0]]

    def load_checked(reader: _Reader) -> None:
        for key in reader.stack[first::2]:
            _check_key(key)
        load(reader)

    return load_checked


def _refuse(what: str) -> Callable[[_Reader], None]:
    def load_refused(reader: _Reader) -> None:
        raise _Refused(what)

    return load_refused


def _load_bytearray8(reader: _Reader) -> None:
    """The bytes are read before memory is taken for them, unlike in the standard library."""
    (count,) = struct.unpack("<Q", reader.read(8))
    reader.append(reader.read(count))


_SAFE: dict[int, Callable[[Any], None]] = {
    pickle.BYTEARRAY8[0]: _load_bytearray8,
    pickle.SETITEM[0]: _with_keys(pickle.SETITEM, -2),
    pickle.SETITEMS[0]: _with_keys(pickle.SETITEMS, 0),
    pickle.DICT[0]: _with_keys(pickle.DICT, 0),
    **{code[0]: _refuse("a set") for code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)},
    **{
        code[0]: _refuse("an object")
        for code in (pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4)
    },
}
"""Opcodes that the standard library handles without these checks."""


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    """Replace stand-ins by their arrays and dictionary keys by text; each object is visited once."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        _check_number(value)
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
        if len(made) < len(value):
            raise _Refused("two dictionary keys that are the same text")
    else:
        raise _Refused(f"a {type(value).__name__.lstrip('_')}")
    done[id(value)] = made
    return made


def _check_key(key: Any) -> None:
    if not isinstance(key, str | bytes | int):
        raise _Refused(f"a dictionary key of type {type(key).__name__}")
    if isinstance(key, str | bytes) and len(key) > MAX_KEY:
        raise _Refused(f"a dictionary key of {len(key)} characters")
    _check_number(key)


def _check_number(value: Any) -> None:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _Refused(f"a number of more than {MAX_BITS} bits")


def _text(key: str | bytes | int) -> str:
    if isinstance(key, bytes):
        return one_line(key.decode("utf-8", "backslashreplace"))
    return one_line(str(key).encode("utf-8", "backslashreplace").decode("utf-8"))
