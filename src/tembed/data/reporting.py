"""What long work tells the outside: lines to read and how far it has come."""

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(text: str) -> str:
    """Text from a file, safe to print: line breaks and other control characters are shown as escapes."""
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


class Reporter:
    """Says nothing; the command line has one that prints."""

    def say(self, line: str) -> None:
        """One line for the user, such as a source that failed before the next is tried."""

    def progress(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` units of ``what``; a total of 0 is unknown."""


SILENT = Reporter()
