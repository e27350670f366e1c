"""Modules of the user that register maximizers, networks, datasets, optimizers, claims, controls or panels.

Only modules that the user names are imported: with ``--plugin MODULE`` on the command line, or in the environment
variable ``TEMBED_PLUGINS``, which worker processes inherit. A recipe, a TOML file or a run folder never imports code.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module

from tembed.common.errors import TembedError, first_line, one_line

VARIABLE = "TEMBED_PLUGINS"
"""The environment variable with the names of the modules, separated by commas."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The environment variable with which Python imports nothing from the current folder."""


def named_plugins() -> list[str]:
    """The modules that ``TEMBED_PLUGINS`` names, each once."""
    names = (name.strip() for name in os.environ.get(VARIABLE, "").split(","))
    return list(dict.fromkeys(name for name in names if name))


def name_plugins(names: Iterable[str]) -> None:
    """Add modules to ``TEMBED_PLUGINS``, so that the processes started from here load them too."""
    together = dict.fromkeys([*named_plugins(), *names])
    if together:
        os.environ[VARIABLE] = ",".join(together)


def load_plugins(names: Iterable[str]) -> None:
    """Import these modules. Each is looked for in the current folder first, as ``python -m`` does."""
    for name in names:
        if not all(word.isidentifier() for word in name.split(".")) or name.endswith(".py"):
            hint = "give the module's name without '.py'" if name.endswith(".py") else "give a name such as my_module"
            raise TembedError(f"plugin {one_line(name)!r} is not the name of a module: {hint}")
        try:
            _import(name)
        except TembedError as error:
            raise TembedError(f"plugin {name!r}: {error}") from error
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                where = f"no such module in {os.getcwd()} or among the installed packages"
                raise TembedError(f"plugin {name!r}: {where}") from None
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise TembedError(f"plugin {name!r} failed: {reason}; python -c 'import {name}' shows where") from error


def _import(name: str) -> None:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        import_module(name)
    finally:
        sys.path.remove(here)
    if here not in sys.path:
        # The plugin can import its neighbours later; at the end of the path, the folder shadows no installed package.
        sys.path.append(here)
