"""The ``tembed`` command: finds the command group and hands it the rest of the line.

Each group is a module with ``main(arguments)``, imported only when it is called for.
"""

import difflib
import os
import sys
from importlib import import_module

from tembed import __version__
from tembed.errors import TembedError
from tembed.machine import ASLEEP, Crowded, waiting_policy

GROUPS = {
    "models": "the networks of Table 1 and their parameter counts",
    "data": "list, get, import, check and show datasets",
    "train": "train a network on a dataset, or go on with it",
    "evaluate": "measure trained weights again",
    "runs": "a table of runs",
    "grid": "run the paper's experiments, or your own, on one machine or a cluster",
    "report": "the paper's numbers and your own side by side",
    "analyze": "draw the paper's figures for a trained run, and measure its claims",
    "explain": "draw what a trained run sees in an image",
    "demo": "train two networks on generated pictures and report, in minutes",
}

COMPUTING = ("train", "evaluate", "analyze", "explain", "demo")
"""Those that have torch at work in this process."""


def usage() -> str:
    width = max(map(len, GROUPS))
    lines = [f"  {name:<{width}}  {text}" for name, text in GROUPS.items()]
    return "\n".join(
        [
            "usage: tembed COMMAND ...",
            "",
            "Feature embedding by template matching as a ResNet block (BMVC 2022).",
            "",
            "commands:",
            *lines,
            "",
            "tembed COMMAND --help tells more about one; tembed --version prints the version.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    alone = arguments is None  # in a process of its own
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        print(f"tembed {__version__}")
        return 0
    if name not in GROUPS:
        near = difflib.get_close_matches(name, GROUPS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "tembed --help lists the commands"
        return fail(f"unknown command {name!r}: {hint}")
    if alone and name in COMPUTING:
        os.environ.update(waiting_policy(os.environ))  # torch is not loaded yet
    try:
        return import_module(f"tembed.cli.{name}").main(rest) or 0
    except TembedError as error:
        return fail(str(error))
    except ModuleNotFoundError as error:
        if error.name not in ("tyro", "rich"):
            raise
        return fail(f"'tembed {name}' needs {error.name}: pip install 'tembed[lab]'")
    except Crowded:
        print("another process works on these cores: going on with threads that sleep while they wait", file=sys.stderr)
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ASLEEP)
    except KeyboardInterrupt:
        return fail("interrupted", code=130)


def fail(message: str, code: int = 2) -> int:
    print(f"tembed: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
