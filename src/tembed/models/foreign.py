"""Names of networks from elsewhere with the block attached: ``timm:resnet18@layer3``, ``my.module:factory@layer``.

A name alone says everything that tables and reports need, so nothing is imported here. `tembed.training` builds them.
"""

import re
from dataclasses import dataclass

from tembed.common.errors import TembedError

TIMM, TEMBED = "timm", "tembed"
"""Sources with a meaning of their own: timm's networks, and those of this package. All others are modules."""
BLOCKS = ("embed", "aux", "none")
PATTERN = re.compile(r"(?P<source>[A-Za-z_][\w.]*):(?P<factory>[\w.-]+)@(?P<at>[\w.]+)(?::(?P<block>\w+))?")
FORM = "timm:NAME@LAYER, tembed:NAME@LAYER or my.module:factory@LAYER"


@dataclass(frozen=True)
class ForeignName:
    """A network of ``source`` with a block behind its submodule ``at``.

    ``factory``: timm's or our name of the network, or a function of the module. ``block``: "embed", "aux" or "none";
    the name ends in ``:aux`` or ``:none`` for the last two.
    """

    source: str
    factory: str
    at: str
    block: str = "embed"

    def __str__(self) -> str:
        end = "" if self.block == "embed" else f":{self.block}"
        return f"{self.source}:{self.factory}@{self.at}{end}"


def is_foreign(name: str) -> bool:
    """Whether a name is of a network from elsewhere, rather than of one that is registered here."""
    return ":" in name or "@" in name


def is_ours(name: str) -> bool:
    """Whether a name is of a network of this package, by itself or with the block attached to a layer of it."""
    return not is_foreign(name) or parse_foreign(name).source == TEMBED


def parse_foreign(name: str, *, layer: bool = True) -> ForeignName:
    """The parts of a name. ``layer=False``: the name may end before ``@LAYER``."""
    text = name.strip()
    if not layer and "@" not in text:
        text += "@_"
    found = PATTERN.fullmatch(text)
    if found is None or (found["block"] or "embed") not in BLOCKS:
        raise TembedError(
            f"{name!r} is not the name of a network: write {FORM}, with ':aux' or ':none' after it for another block; "
            "tembed layers lists the layers of a network"
        )
    return ForeignName(found["source"], found["factory"], found["at"], found["block"] or "embed")


def user_module(name: str) -> str | None:
    """The user's module that a name refers to; None for timm's networks, for ours, and for a wrong name."""
    found = PATTERN.fullmatch(name.strip())
    return found["source"] if found and found["source"] not in (TIMM, TEMBED) else None


def with_block(name: str, block: str | None) -> str:
    """The name with another block; None leaves it as it is."""
    if block is None:
        return name
    if not is_foreign(name):
        raise TembedError(f"`block` does not apply to {name}, whose name says which block it has; leave it out")
    parsed = parse_foreign(name)
    return str(ForeignName(parsed.source, parsed.factory, parsed.at, block))
