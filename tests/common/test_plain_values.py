"""Values from a file fit the type of a field, or they do not."""

from typing import Any, Literal

import pytest

from tembed.common.plain_values import choices, fits


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [3], [3.0, True, "3", None]),
        (float, [3.0, 3], [True, "3", None]),
        (float | None, [3.0, None], ["3", [3.0]]),
        (Literal["a", "b"], ["a"], ["c", None]),
        (tuple[int, ...], [[], [1, 2], (1,)], [1, "12", [1, "2"], None]),
        (tuple[int, str], [[1, "a"]], [[1], [1, "a", "b"], ["a", 1], {1: "a"}]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, {1: 1}, [("a", 1)]]),
        (Any, [None, 1, "a", []], []),
    ],
)
def test_a_value_fits_its_hint(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)


def test_the_choices_of_a_field_are_those_of_its_literal() -> None:
    assert choices(Literal["a", "b"] | None) == choices(Literal["a", "b"]) == ("a", "b")
