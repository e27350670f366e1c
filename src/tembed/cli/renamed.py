"""Flags of older versions, which are still read."""

import sys


def renamed_flag(arguments: list[str], old: str, new: str) -> list[str]:
    """The arguments with the flag ``old`` replaced by ``new``, and a notice on stderr if it was there.

    Both forms are recognised, ``--old VALUE`` and ``--old=VALUE``.
    """
    renamed = [
        new + argument.removeprefix(old) if argument == old or argument.startswith(f"{old}=") else argument
        for argument in arguments
    ]
    if renamed != arguments:
        print(f"tembed: {old} is now called {new}", file=sys.stderr)
    return renamed
