"""What long work tells the outside: lines to read and how far it has come."""


class Reporter:
    """Says nothing; the command line has one that prints."""

    def say(self, line: str) -> None:
        """One line for the user, such as a source that failed before the next is tried."""

    def progress(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` units of ``what``; a total of 0 is unknown."""


SILENT = Reporter()
