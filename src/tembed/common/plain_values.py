"""Plain values from files (JSON, TOML) beside the types of a dataclass."""

import sys
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from tembed.common.errors import TembedError

SHOWN = 80
"""Characters of a wrong value in an error."""


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a field's type. A list fits a tuple, and a whole number fits a float."""
    kinds = get_args(hint)
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in kinds
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(fits(key, kinds[0]) and fits(value[key], kinds[1]) for key in value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            return False
        if kinds[-1] is Ellipsis:
            return all(fits(each, kinds[0]) for each in value)
        return len(value) == len(kinds) and all(map(fits, value, kinds))
    if kinds:  # a union
        return any(fits(value, kind) for kind in kinds)
    return type(value) is hint or (hint is float and type(value) is int)


def is_finite(number: float) -> bool:
    """Whether a number is neither NaN nor infinite, nor a whole number that no float holds."""
    return abs(number) <= sys.float_info.max


def check_fields(record: Any, hints: Mapping[str, Any]) -> None:
    """Raise `TembedError` unless a record from a file has these fields, with values of these types."""
    if not isinstance(record, dict):
        raise TembedError(f"it is {_shown(record)}, not a table of fields")
    for name, hint in hints.items():
        if name not in record:
            raise TembedError(f"it has no {name}")
        if not fits(record[name], hint):
            raise wrong_field(record, name)


def wrong_field(record: Mapping[str, Any], name: str) -> TembedError:
    """The error about a field whose value cannot be right."""
    return TembedError(f"its {name} is {_shown(record[name])}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a fixed choice, also of one that may be None."""
    kinds = get_args(hint)
    return kinds if get_origin(hint) is Literal else tuple(choice for kind in kinds for choice in choices(kind))
