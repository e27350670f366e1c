"""The one exception that the command line shows as a single line instead of a traceback."""


class TembedError(ValueError):
    """A mistake in what the user gave; the message names it and the way out."""
