"""Pickles give arrays, strings, numbers and lists; nothing in them is executed."""

import io
import os
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tembed.common.errors import TembedError
from tembed.lab.data.readers.pickles import read_pickle


def read(data: bytes) -> dict[str, Any]:
    return read_pickle(io.BytesIO(data), len(data), "file.pkl")


class Runs:
    """A pickled instance calls a function when it is loaded the usual way."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4"])
def test_arrays_of_every_protocol_are_read(protocol: int, dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    found = read(pickle.dumps({"a": array, "b": ["x", 1, 2.5, None, np.int64(7)]}, protocol))
    assert (found["a"] == array).all()
    assert found["a"].dtype == array.dtype
    assert found["b"] == ["x", 1, 2.5, None, 7]


@pytest.mark.parametrize("protocol", [2, 5])
def test_column_order_is_kept(protocol: int) -> None:
    array = np.asfortranarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    assert (read(pickle.dumps({"a": array}, protocol))["a"] == array).all()


def test_python_2_keys_are_text() -> None:
    assert read(pickle.dumps({b"data": b"x"}, 2)) == {"data": b"x"}


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_refused_by_name_and_never_executed(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    data = pickle.dumps({"data": Runs(os.mkdir, str(mark))}, protocol)
    with pytest.raises(TembedError, match=r"file\.pkl is a pickle that contains .*mkdir.*nothing in it was run"):
        read(data)
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [Fraction(1, 2), {1, 2}, np.array([object], object), np.dtype("O"), os.path.join, int, 1j, np.array("x")],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_anything_but_arrays_strings_numbers_and_lists_is_refused(value: Any) -> None:
    with pytest.raises(TembedError, match="only arrays, strings, numbers and lists"):
        read(pickle.dumps({"data": value}))


@pytest.mark.parametrize(
    "data",
    [
        b"cnumpy\nndarray\n}X\x04\x00\x00\x00_makeNsb.",  # set an attribute of the stand-in itself
        b"cnumpy\ndtype\n(X\x01\x00\x00\x00OtR.",
        b"cnumpy.core.multiarray\n_reconstruct\n)R.",
        b"\x80\x02X\x05\x00\x00\x00helloQ.",  # a persistent reference
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x0f.",  # a frame of 2**60 bytes
        b"\x80\x02]r\xff\xff\xff\xffh\x00.",  # memo number 2**32 - 1
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",
        b"]q\x00h\x00a.",  # a list that holds itself
        pickle.dumps([1]),
        b"",
    ],
)
def test_hand_made_attacks_are_refused(data: bytes) -> None:
    with pytest.raises(TembedError, match=r"file\.pkl"):
        read(data)


def test_a_hostile_name_does_not_reach_the_terminal() -> None:
    with pytest.raises(TembedError) as caught:
        read(b"\x80\x04\x8c\x05\x1b[2Jx\x8c\x03a\nb\x93.")
    assert str(caught.value).isprintable()


def test_lists_of_lists_of_lists_do_not_explode() -> None:
    bomb: list[Any] = [0] * 3000
    for _ in range(3):
        bomb = [bomb] * 3000
    assert len(read(pickle.dumps({"data": bomb}))["data"]) == 3000


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(TembedError, match="extra bytes at the end"):
        read(pickle.dumps({}) + b"x")


@pytest.mark.parametrize("value", [{1 << 64: 0}, {"data": [1 << 64]}, {"data": -(1 << 20_000)}])
def test_a_number_of_more_than_64_bits_is_refused(value: Any) -> None:
    """Its hash is computed again for each use as a key, and its digits cannot be printed."""
    with pytest.raises(TembedError, match="a number of more than 64 bits"):
        read(pickle.dumps(value))


@pytest.mark.parametrize("keys", [("a\n", "a\\n"), ("a", b"a"), ("1", 1)])
def test_two_keys_with_one_name_are_refused(keys: tuple[Any, Any]) -> None:
    with pytest.raises(TembedError, match="two dictionary keys"):
        read(pickle.dumps(dict.fromkeys(keys, 0)))
