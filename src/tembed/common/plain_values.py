"""Plain values from files (JSON, TOML) beside the types of a dataclass."""

from typing import Any, Literal, get_args, get_origin


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


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a fixed choice, also of one that may be None."""
    kinds = get_args(hint)
    return kinds if get_origin(hint) is Literal else tuple(choice for kind in kinds for choice in choices(kind))
