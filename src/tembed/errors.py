"""The one exception that the command line shows as a single line instead of a traceback, and a line for the others."""

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TembedError(ValueError):
    """A mistake in what the user gave; the message names it and the way out."""


def first_line(error: BaseException) -> str:
    """What an error says first; its kind, if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def one_line(text: str) -> str:
    """Text from a file, safe to print: line breaks and other control characters become escapes."""
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)
