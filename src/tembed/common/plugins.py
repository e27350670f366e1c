"""Modules of the user that register maximizers, networks, datasets, optimizers or claims.

Only modules that the user names are imported: with ``--plugin MODULE`` on the command line, or in the environment
variable ``TEMBED_PLUGINS``, which worker processes inherit. A recipe, a TOML file or a run folder never imports code.
"""

import difflib
import os
import sys
from collections.abc import Iterable
from importlib import import_module

from tembed.common.errors import TembedError, first_line, one_line
from tembed.paper import LABELS

VARIABLE = "TEMBED_PLUGINS"
"""The environment variable with the names of the modules, separated by commas."""
NETWORKS = (*LABELS, "rn20", "rn26-1x1")
"""The networks of this package, for errors that should not wait for torch; a test compares them with the registry."""


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


# --- names of networks


def model_key(name: str) -> str:
    """The form in which names and labels of networks are compared."""
    return name.strip().lower().replace("_", "-").rstrip(".")


def unknown_model(name: str, known: Iterable[str]) -> TembedError:
    """The error for a network that nobody has registered."""
    known = sorted(known)
    near = difflib.get_close_matches(model_key(name), known, n=3, cutoff=0.5)
    hint = f"did you mean one of these: {', '.join(near)}?" if near else f"choose from: {', '.join(known)}"
    return TembedError(f"unknown model {name!r}; {hint}")


def check_model_name(name: str) -> None:
    """Raise `TembedError` for a name that neither this package nor a plugin knows, without loading torch.

    Once the networks are loaded, or if plugins may have added some, the registry decides.
    """
    if "tembed.models" in sys.modules or named_plugins() or ":" in name or "@" in name:
        return
    labels = {model_key(label) for label in LABELS.values()}
    if model_key(name) not in {*NETWORKS, *labels}:
        raise unknown_model(name, NETWORKS)
