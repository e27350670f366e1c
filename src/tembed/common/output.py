"""Output for people: names from files cannot control a terminal, and nothing ends because its reader has gone."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from tembed.common.errors import CONTROL

UNSAFE = re.compile(r"(\x1b\[[0-9;]*m|[\n\t])|" + CONTROL.pattern)
"""Control characters; those in the group are harmless: colours, line breaks and tabs."""


class RobustStream:
    """A text stream that drops everything after an error of these kinds: its reader has gone, or its terminal."""

    def __init__(self, stream: TextIO, *errors: type[OSError]):
        self.stream, self.errors = stream, errors

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
        except self.errors:
            discard(self.stream)
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except self.errors:
            discard(self.stream)

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
    output: Any = EscapedStream(sys.stdout, BrokenPipeError)  # a full disk is an error
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
