"""Class colours differ for every kind of colour vision."""

import numpy as np
import pytest

from tembed.lab.analysis.colours import class_colours, seen


@pytest.mark.parametrize(("count", "apart"), [(2, 30), (10, 17), (20, 9)])
def test_colours_keep_their_distance_in_every_kind_of_vision(count: int, apart: float) -> None:
    views = seen(np.array(class_colours(count)) / 255)
    distances = np.linalg.norm(views[:, :, None] - views[:, None], axis=-1)
    assert distances[:, ~np.eye(count, dtype=bool)].min() > apart


def test_a_hundred_classes_have_a_hundred_colours_and_the_first_ten_are_fixed() -> None:
    assert len(set(class_colours(100))) == 100
    assert class_colours(100)[:10] == class_colours(10)


def test_colour_blindness_is_simulated() -> None:
    """White is white in every kind of vision; red and green differ far less for a deuteranope."""
    white, red, green = seen(np.array([[1, 1, 1], [0.8, 0.2, 0], [0.35, 0.45, 0]])).transpose(1, 0, 2)
    np.testing.assert_allclose(white, [[100, 0, 0]] * 3, atol=0.1)
    assert np.linalg.norm(red[2] - green[2]) < 0.35 * np.linalg.norm(red[0] - green[0])
