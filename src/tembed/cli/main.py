"""The ``tembed`` command: loads the plugins, finds the command and passes it the rest of the line.

Each command is a module with ``main(arguments)``, which is imported when the command is used. The library's errors name
arguments in backticks (`train_images`); here they become flags (``--train-images``). A command for which an argument is
called something else says so in a dict ``FLAGS``.
"""

import difflib
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module

from tembed import __version__
from tembed.common.cores import waiting_policy
from tembed.common.errors import TembedError, one_line
from tembed.common.output import robust_output
from tembed.common.plugins import SAFE_PATH, load_plugins, name_plugins, named_plugins

COMMANDS = {
    "doctor": "say what this machine has of what tembed needs, and what to do next",
    "demo": "train two networks on generated images and write a report, in minutes",
    "models": "list the networks of Table 1 and their parameter counts",
    "data": "list, get, import, check and show datasets",
    "layers": "list where the block can be attached in a network of timm or of yours",
    "train": "train a network on a dataset, or resume a run",
    "runs": "print a table of runs",
    "evaluate": "measure trained weights: accuracy by class, confusions, calibration, worst images",
    "predict": "classify your own images with a trained run",
    "explain": "draw what a trained run sees in an image",
    "analyze": "draw the paper's figures for a trained run and measure its claims",
    "explore": "build a page that shows every patch of a trained run on a map",
    "judge": "measure a trained run's explanations beside their rivals",
    "export": "write a trained network as an ONNX file or a folder for the Hugging Face hub",
    "grid": "run the paper's experiments, or your own, on one machine or a cluster",
    "report": "compare your runs with the paper's numbers",
    "cache": "list or delete the cached features of frozen networks",
}
"""Every command in the order of use, and what it does in a line."""

COMPUTING = ("layers", "train", "evaluate", "analyze", "explore", "explain", "judge", "predict", "export", "demo")
"""The commands that compute with torch in this process."""

ARGUMENT = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)*)`")
"""The name of an argument in an error message of the library."""


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tembed [--plugin MODULE] COMMAND ...",
            "",
            "Feature embedding by template matching as a ResNet block (BMVC 2022).",
            "",
            "commands, in the order of use:",
            *lines,
            "",
            "--plugin MODULE imports a Python module of yours that adds networks, datasets and so on: see",
            "docs/extending.md. It can be given several times and anywhere on the line. The environment variable",
            "TEMBED_PLUGINS=MODULE,MODULE does the same. The current folder is searched first.",
            "",
            "tembed COMMAND --help explains a command; tembed --version prints the version.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command line, by default that of this process, and return its exit code."""
    try:
        with robust_output():
            return run(arguments)
    except TembedError as error:  # of what is printed last
        return fail(str(error))


def run(arguments: list[str] | None) -> int:
    own_process = arguments is None
    if own_process:
        os.environ[SAFE_PATH] = "1"  # for every process that is started from here, by whatever package
    try:
        arguments, plugins = split_plugins(sys.argv[1:] if arguments is None else arguments)
    except TembedError as error:
        return fail(str(error))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        print(f"tembed {__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "tembed --help lists the commands"
        return fail(f"unknown command {name!r}: {hint}")
    if own_process and name in COMPUTING:
        os.environ.update(waiting_policy(os.environ))  # must come before torch is loaded, and plugins load it
    flags: Mapping[str, str] = {}
    try:
        name_plugins(plugins)
        load_plugins(named_plugins())
        command = import_module(f"tembed.cli.cmd_{name}")
        flags = getattr(command, "FLAGS", {})
        return command.main(rest) or 0
    except TembedError as error:
        return fail(with_flags(str(error), flags), error.exit_code)
    except ModuleNotFoundError as error:
        if error.name not in ("tyro", "rich"):
            raise
        return fail(f"'tembed {name}' needs {error.name}: pip install 'tembed[lab]'")
    except MemoryError:
        return fail(f"'tembed {name}' needs more memory than there is: end other programs and run it again")
    except KeyboardInterrupt:
        return fail("interrupted", code=130)


def split_plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The line without ``--plugin MODULE`` and ``--plugin=MODULE``, and the modules."""
    rest, modules, words = [], [], iter(arguments)
    for word in words:
        flag, _, module = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        module = next(words, "") if word == flag else module
        if not module or module.startswith("-"):
            raise TembedError("--plugin needs the name of a module: --plugin my_module")
        modules.append(module)
    return rest, modules


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """An error with flags instead of the arguments' names: `train_images` becomes ``--train-images``."""
    return ARGUMENT.sub(lambda found: flags.get(found[1]) or "--" + found[1].replace("_", "-"), message)


def fail(message: str, code: int = 2) -> int:
    print(f"tembed: error: {one_line(message)}", file=sys.stderr, flush=True)
    return code
