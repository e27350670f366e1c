"""Sprite maps draw the right patch with the right marks in the right cell."""

import dataclasses

import numpy as np
from support.features import made_features

from tembed.lab.analysis.effective_fields import PatchView
from tembed.lab.analysis.figures import legend_points
from tembed.lab.analysis.sprites import FRAME, TILE, cells, free_cell, marked, sprite_map, thinned

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 200, 0), (0, 0, 255), (255, 255, 255)


def test_a_tile_has_the_papers_marks() -> None:
    tile = np.asarray(marked(np.full((16, 16, 3), 77, np.uint8), RED, GREEN, 0.25, view=PatchView()))
    assert tile.shape == (TILE, TILE, 3)
    for edge in (tile[-FRAME:], tile[:, -FRAME:], tile[TILE // 2 :, :FRAME]):
        assert (edge == RED).all()
    assert (tile[2:8, 2:8] == GREEN).all()
    assert (tile[TILE // 2, TILE // 2] == round(0.25 * 255)).all()
    assert (tile[TILE - 8, TILE - 8] == 77).all()


def test_a_cell_with_many_points_shows_the_one_nearest_to_its_centre() -> None:
    coordinates = np.random.default_rng(0).uniform(size=(500, 2)).astype(np.float32)
    cell, distance = cells(coordinates, 5)
    kept = thinned(cell, distance)
    assert len(kept) == len(np.unique(cell, axis=0)) == 25
    for point in kept:
        rivals = np.flatnonzero((cell == cell[point]).all(1))
        assert distance[point] == distance[rivals].min()
    low, high = coordinates.min(0), coordinates.max(0)
    span = (high - low).max()
    for point in range(500):  # row is the second coordinate
        along = (coordinates[point] - (low + high) / 2) / span * 5 + 2.5
        assert abs(cell[point, 1] + 0.5 - along[0]) < 0.51
        assert abs(cell[point, 0] + 0.5 - along[1]) < 0.51


def test_patches_class_vectors_and_zero_are_drawn_at_their_coordinates() -> None:
    labels = np.arange(4)
    features = made_features(labels, (1, 1))
    images = np.stack([np.full((8, 8, 3), 40 * (n + 1), np.uint8) for n in range(4)])
    colours = [RED, GREEN, BLUE, (9, 9, 9)]
    corners = np.array([[0, 0], [9, 0], [0, 9], [9, 9]], np.float32)
    classes = ("a", "b", "c", "d")
    plain = sprite_map(features, images, corners, classes, colours, PatchView(), title="t", side=10 * TILE)
    pixels = np.asarray(plain)[plain.height - plain.width :]
    for image, (x, y) in enumerate(((0, 0), (9, 0), (0, 9), (9, 9))):
        tile = pixels[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]
        assert (tile[-1, -1] == colours[image]).all()
        assert (tile[-8, -8] == 40 * (image + 1)).all()
        assert (tile[4, 4] == colours[int(features.head[image])]).all()
    inner = np.array([[3, 3], [6, 3], [3, 6], [6, 6], [4.5, 4.5]], np.float32)
    with_values = sprite_map(
        features, images, np.concatenate([corners, inner]), classes, colours, PatchView(), title="t", side=10 * TILE
    )
    pixels = np.asarray(with_values)[with_values.height - with_values.width :]
    cell, _ = cells(np.concatenate([corners, inner]), 10)
    for number, (row, column) in enumerate(cell[4:]):
        solid = (0, 0, 0) if number == 4 else colours[number]
        assert (pixels[row * TILE + 5, column * TILE + 5] == solid).all()


def test_class_vectors_of_one_cell_are_drawn_side_by_side() -> None:
    assert free_cell((3, 3), set(), 9) == (3, 3)
    assert free_cell((3, 3), {(3, 3)}, 9) == (2, 3)
    assert free_cell((0, 0), {(0, 0), (0, 1), (1, 0)}, 9) == (1, 1)


def test_the_legend_shows_a_certain_right_patch_and_an_uncertain_one_of_a_wrong_image() -> None:
    labels = np.repeat(np.arange(4), 8)
    features = made_features(labels, (4, 4))
    groups = np.array([0, 0, 1, 1])
    (_, certain), (title, uncertain) = legend_points(features, groups)
    assert features.softmax is not None
    assert features.entropy is not None
    image = features.position(certain)[0]
    assert features.head[image] == labels[image] == features.softmax[certain].argmax()
    assert features.entropy[certain] < np.quantile(features.entropy, 0.2)
    image = features.position(uncertain)[0]
    assert features.head[image] != labels[image]
    assert title == "higher entropy, misclassified"
    assert features.entropy[uncertain] > np.median(features.entropy)
    right = dataclasses.replace(features, logits=np.eye(4, dtype=np.float32)[labels])
    assert "no image is misclassified" in legend_points(right, groups)[1][0]
    assert "no image is correctly" in legend_points(dataclasses.replace(features, logits=-right.logits), None)[0][0]
