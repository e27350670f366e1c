"""Pictures that are not in a dataset: which arrays are pictures, and which part of one a network gets."""

import numpy as np
import pytest

from tembed.common.arrays import Fit
from tembed.common.errors import TembedError
from tembed.images.pictures import read_picture, short_names

RGB = np.random.default_rng(0).integers(0, 256, (6, 10, 3), np.uint8)


@pytest.mark.parametrize(
    ("shape", "good"),
    [
        ((6, 10, 3), True),
        ((6, 10), True),
        ((6, 10, 4), False),
        ((6, 10, 3, 1), False),
        ((6,), False),
        ((0, 10, 3), False),
    ],
)
def test_an_array_is_a_picture_if_it_is_grey_or_has_three_colours(shape: tuple[int, ...], good: bool) -> None:
    array = np.full(shape, 7, np.uint8)
    if good:
        assert (read_picture(array, 4).photo == np.full((6, 10, 3), 7)).all()
        return
    with pytest.raises(TembedError, match=r"of shape \(.*\): give \(H, W, 3\), or \(H, W\)"):
        read_picture(array, 4)


@pytest.mark.parametrize(("fit", "box"), [("crop", (2, 0, 8, 6)), ("pad", (0, -2, 10, 8)), ("stretch", (0, 0, 10, 6))])
def test_the_box_is_the_part_of_the_photograph_that_the_network_gets(fit: Fit, box: tuple[int, ...]) -> None:
    found = read_picture(RGB, 6, fit)
    assert found.box == box
    assert found.pixels.shape == (6, 6, 3)
    if fit == "crop":
        np.testing.assert_array_equal(found.pixels, RGB[:, 2:8])


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    assert short_names(["a/1.jpg", "b/2.jpg"]) == ["1.jpg", "2.jpg"]
    assert short_names(["in/a/1.jpg", "in/b/1.jpg", "in/b/2.jpg"]) == ["a/1.jpg", "b/1.jpg", "b/2.jpg"]
    assert short_names(["x/a/1.jpg", "y/a/1.jpg", "y/a/1.jpg"]) == ["x/a/1.jpg", "y/a/1.jpg", "y/a/1.jpg"]
    assert short_names(["1.jpg", "a/1.jpg"]) == ["1.jpg", "a/1.jpg"]
    assert short_names([]) == []
