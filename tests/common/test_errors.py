"""Messages of one line."""

import pytest

from tembed.common.errors import counted, first_line, one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("size mismatch\nfor head.weight"), "size mismatch"),
        (RuntimeError("\n\n  the first line with a text\nmore"), "the first line with a text"),
        (RuntimeError(""), "RuntimeError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_first_line_of_an_error_is_its_message_else_its_type(error: BaseException, line: str) -> None:
    assert first_line(error) == line


def test_control_characters_are_escaped_and_all_others_stay() -> None:
    assert one_line("a\nb\x1b[2J\x7f\u2028 é犬~") == "a\\nb\\x1b[2J\\x7f\\u2028 é犬~"


def test_a_number_of_things_is_in_the_singular_for_one() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 1200)] == ["0 runs", "1 run", "2 runs", "1,200 runs"]
