"""The panels of the page: a script each, and what the script gets of an analysis.

The script calls ``tembed.registerPanel`` (``static/js/panels.js``); a panel from outside the package is registered here
in the same way as the page's own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tembed.common.errors import TembedError, first_line
from tembed.lab.page.encoding import STATIC, json_text

if TYPE_CHECKING:
    from tembed.lab.analysis.analyzing import Analysis

Data = Callable[["Analysis"], Any]


@dataclass(frozen=True)
class Panel:
    """``script``: JavaScript. ``data``: what it gets of an analysis, as values that JSON knows."""

    script: str
    data: Data | None = None


_PANELS: dict[str, Panel] = {}


def register_panel(name: str, script: str | Path, data: Data | None = None) -> None:
    """Add a panel to every page that is built from now on.

    ``script``: JavaScript that calls ``tembed.registerPanel(name, tab, Panel)``, or the path of such a ``.js`` file.
    ``data(analysis)``: plain values (numbers, texts, lists, dictionaries) that the page passes to the panel.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise TembedError(f"{name!r} cannot name a panel: use small letters, digits and hyphens")
    if name in _PANELS:
        raise TembedError(f"a panel named {name!r} is already registered: choose another name")
    _PANELS[name] = Panel(_source(script), data)


def panel_scripts() -> dict[str, str]:
    """The script of each panel, in the order of the tabs."""
    return {name: panel.script for name, panel in _PANELS.items()}


def panel_data(analysis: "Analysis") -> dict[str, Any]:
    """What each panel gets of an analysis. Raises `TembedError` for values that JSON does not know."""
    found = {name: panel.data(analysis) if panel.data else None for name, panel in _PANELS.items()}
    for name, data in found.items():
        try:
            json_text(data)
        except (TypeError, ValueError) as error:
            raise TembedError(f"the data of panel {name!r} cannot be written as JSON: {first_line(error)}") from error
    return found


def _source(script: str | Path) -> str:
    if isinstance(script, str) and not script.endswith(".js"):
        return script
    try:
        return Path(script).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TembedError(f"cannot read the script {script}: {first_line(error)}") from error


# The page's own panels, in the order of their tabs.
for _name in ("filter", "words", "mix", "drop"):
    register_panel(_name, STATIC / "js" / "panels" / f"{_name}.js")
