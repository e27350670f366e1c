"""Output for people: names from files cannot control a terminal, and nothing ends because its reader has gone."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from tembed.common.errors import CONTROL, TembedError

UNSAFE = re.compile(r"(\x1b\[[0-9;]*m|[\n\t])|" + CONTROL.pattern)
"""Control characters; those in the group are harmless: colours, line breaks and tabs."""


class RobustStream:
    """A text stream that drops everything after an error of these kinds: its reader has gone, or its terminal.

    After another error, such as that of a full disk, it raises one `TembedError` and drops the rest.
    """

    def __init__(self, stream: TextIO, *errors: type[OSError]):
        self.stream, self.errors = stream, errors

    def write(self, text: str) -> int:
        with self._guarded():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._guarded():
            self.stream.flush()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            discard(self.stream)
            if not isinstance(error, self.errors):
                reason = error.strerror or error
                raise TembedError(f"the output cannot be written ({reason}): send it elsewhere") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class EscapedStream(RobustStream):
    """A text stream that escapes control characters, too."""

    def write(self, text: str) -> int:
        super().write(UNSAFE.sub(_escaped, text))
        return len(text)


@contextmanager
def robust_output() -> Iterator[None]:
    """Within the ``with``, print to an `EscapedStream` standard output and a `RobustStream` standard error."""
    output: Any = EscapedStream(sys.stdout, BrokenPipeError)
    errors: Any = RobustStream(sys.stderr, OSError)
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            yield
        finally:
            output.flush()


def discard(stream: TextIO) -> None:
    """Send what is written to a stream from now on, and what it has buffered, to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def _escaped(found: re.Match[str]) -> str:
    return found[1] or found[0].encode("unicode_escape").decode("ascii")
