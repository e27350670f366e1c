"""How a command reads its options, and how its help shows them.

A command is a frozen dataclass. A nested dataclass is a box of its own in the help, and its options have no prefix. The
docstring of a field is its help text. Where the default is not a plain value, such as None, the docstring ends with
``(default: ...)``, which says what happens then.
"""

import dataclasses
from functools import partial, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import docstring_parser
import tyro

T = TypeVar("T")


def read_options(kind: type[T], prog: str, arguments: list[str], default: T | None = None, **more: Any) -> T:
    """The options that a command line gives. ``more``: further arguments of `tyro.cli`."""
    if {"-h", "--help"} & set(arguments):
        kind = with_help(kind)
        default = None if default is None else _as_kind(default, kind)
    if default is not None:
        more["default"] = default
    return tyro.cli(kind, prog=prog, args=arguments, config=(tyro.conf.OmitArgPrefixes,), **more)


def with_help(kind: Any) -> Any:
    """The dataclass (or a union of them) with texts, names of values and defaults as its help shows them."""
    if get_origin(kind) is UnionType:
        return reduce(or_, map(with_help, get_args(kind)))
    hints, texts = get_type_hints(kind, include_extras=True), field_texts(kind)
    shown: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        hint = hints[each.name]
        bare, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if dataclasses.is_dataclass(bare):
            shown[each.name] = Annotated[with_help(bare), tyro.conf.arg(), *metadata]
            continue
        text, _, meaning = texts.get(each.name, "").partition(" (default: ")
        needed = each.default is dataclasses.MISSING  # tyro takes a list of none as well
        end = partial(_end_of_text, "(required)" if needed else f"(default: {meaning.removesuffix(')') or None})")
        ours = tyro.conf.arg(help=text, help_behavior_hint=end, metavar=optional_metavar(bare))
        shown[each.name] = Annotated[bare, ours, *metadata]
    made = type(kind.__name__, (kind,), {"__annotations__": shown, "__doc__": kind.__doc__})
    return dataclasses.dataclass(frozen=True, kw_only=True)(made)


def _as_kind(value: Any, kind: type) -> Any:
    """A dataclass and those in it as instances of the classes that `with_help` made."""
    kinds = get_type_hints(kind)
    values = {name: getattr(value, name) for name in kinds}
    return kind(**{n: _as_kind(v, kinds[n]) if dataclasses.is_dataclass(v) else v for n, v in values.items()})


def _end_of_text(otherwise: str, default: str) -> str:
    """The end of a help text: the default, or ``otherwise`` if it is None or empty."""
    return otherwise if default in ("None", "") else f"(default: {default})"


def field_texts(kind: type) -> dict[str, str]:
    """The docstring of each field on one line, also those of inherited fields, with flags for names of fields."""
    from tembed.cli.main import with_flags

    texts = {}
    for base in reversed(kind.__mro__[:-1]):
        for each in docstring_parser.parse_from_object(base).params:
            texts[each.arg_name] = with_flags(" ".join((each.description or "").split()), {})
    return texts


def optional_metavar(kind: Any) -> str | None:
    """What an option that may be None takes, without the None; None for any other option."""
    kinds = set(get_args(kind)) - {NoneType}
    if NoneType not in get_args(kind) or len(kinds) != 1:
        return None
    (only,) = kinds
    choices = get_args(only) if get_origin(only) is Literal else (True, False) if only is bool else ()
    return "{" + ",".join(map(str, choices)) + "}" if choices else only.__name__.upper()
