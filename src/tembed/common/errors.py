"""The exception that the command line shows as one line instead of a traceback, and helpers for one-line messages."""

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TembedError(ValueError):
    """A mistake in the user's input. The message says what is wrong and how to correct it.

    A single word in backticks is the name of an argument; the command line shows it as a flag.
    """

    exit_code = 2
    """of a command that ends with this error"""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def one_line(text: str) -> str:
    """Text from a file that is safe to print: control characters, including line breaks, are escaped."""
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 thread``, ``2 threads``, ``1,200 threads``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
