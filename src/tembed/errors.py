"""The one exception that the command line shows as a single line instead of a traceback, and a line for the others."""


class TembedError(ValueError):
    """A mistake in what the user gave; the message names it and the way out."""


def first_line(error: BaseException) -> str:
    """What an error says first; its kind, if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
