"""What the patches of a photograph match, and what the head makes of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.block import PatchScores
from tembed.common.arrays import Floats, UInt8, probability
from tembed.common.errors import TembedError
from tembed.images.pictures import Given, Picture, all_given, read_picture, short_names
from tembed.images.pixels import normalised
from tembed.lab.analysis.analysis_folder import stored_effective_field
from tembed.lab.analysis.attributions import best_attribution
from tembed.lab.analysis.effective_fields import EffectiveField, Window, pixels
from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.figures import mixture
from tembed.lab.analysis.heat_map import Box, overlay, smooth_map
from tembed.lab.data.image_set import ImageSet
from tembed.trained.weights_file import AnyNetwork, Loadable, as_network, name_of

HOTTEST_GRADIENT, HOTTEST_ACTIVATION, POWER = 200.0, 20.0, 0.5
"""Colour scale of maps of the answer: its ends, and the power that makes low values visible.

The mean of a class activation map is a logit. One step of gradients overshoots it, by about ten times at its peaks.
"""


@dataclass(frozen=True)
class AnswerMaps:
    """Maps that explain the network's answer. ``of``: the map of a class, ``(S, S)``, by its index.

    ``hottest``: the end of their colour scale. A map is computed when it is asked for, because each class takes a pass
    backwards through the network.
    """

    name: str
    of: Callable[[int], Floats]
    hottest: float = HOTTEST_GRADIENT


@dataclass(frozen=True)
class Explanation:
    """A photograph, the part of it that the network got, and what the network computed.

    ``photo``: ``(H, W, 3)``. ``box``: the part that the network got, in pixels of the photograph. ``image``: that part
    at the network's input size. ``patch_probabilities``: ``(h, w, C)``, the patches' class predictions. ``entropy``:
    ``(h, w)``, in nats. ``probabilities``: ``(C,)``, those of the head. ``window``: the size of a patch in cells of the
    map. ``answer_maps``: maps that explain the answer of the head; None if the network has none.
    ``effective_field``: how much of a patch's score comes from inside its window; None if it was not measured.
    ``shown``: which window of a patch is drawn.
    """

    name: str
    classes: tuple[str, ...]
    photo: UInt8
    box: Box
    image: UInt8
    patch_probabilities: Floats
    entropy: Floats
    probabilities: Floats
    window: tuple[int, int]
    answer_maps: AnswerMaps | None = None
    effective_field: EffectiveField | None = None
    shown: Window = "nominal"

    @property
    def evidence(self) -> str:
        """How much of a patch's score comes from inside its window."""
        if self.effective_field is not None:
            return self.effective_field.note
        sides = zip(self.window, self.image.shape[:2], self.entropy.shape, strict=True)
        height, width = (k * side // cells for k, side, cells in sides)
        return (
            f"A patch is {pixels((height, width))} wide. How much of its score comes from there was not measured: "
            "tembed analyze measures and stores it."
        )

    @property
    def note(self) -> str:
        """The size of the photograph, and what was done to it."""
        (height, width), side = self.photo.shape[:2], self.image.shape[0]
        if (height, width) == (side, side):
            return f"{width}x{height} pixels"
        left, top, right, bottom = self.box
        if height == width:
            what = "resized"
        elif left < 0 or top < 0:
            what = "resized and padded"
        else:
            what = (
                "stretched" if (right - left, bottom - top) == (width, height) else "resized and cropped to its centre"
            )
        return f"{width}x{height} pixels, {what}: {side}x{side}"

    @property
    def prediction(self) -> str:
        """The class that the head predicts."""
        return self.classes[int(self.probabilities.argmax())]

    @property
    def patches(self) -> Floats:
        """The mean prediction of the patches: ``(C,)``."""
        return self.patch_probabilities.mean((0, 1))

    @property
    def patch_prediction(self) -> str:
        """The class with the most mass over all patches."""
        return self.classes[int(self.patches.argmax())]

    @property
    def agree(self) -> bool:
        """Whether head and patches predict the same class."""
        return self.prediction == self.patch_prediction

    @property
    def verdict(self) -> str:
        """Head and patches in one line."""
        head = f"{self.prediction} {probability(self.probabilities.max())}"
        if self.agree:
            return f"{head}; the patches agree ({probability(self.patches.max())})"
        return f"{head}; the patches disagree: {self.patch_prediction} ({probability(self.patches.max())})"

    @property
    def leading(self) -> list[int]:
        """All classes: the head's class, then those with the most mass over the patches."""
        head = int(self.probabilities.argmax())
        return [head, *(k for k in np.argsort(-self.patches, kind="stable").tolist() if k != head)]

    def mixture(self, row: int, column: int) -> str:
        """The classes that a patch matches: ``0.5 plane + 0.4 bird``."""
        return mixture(self.patch_probabilities[row, column], self.classes)

    def words(self) -> str:
        """The mixture of each patch, a line each, by row and column of the map from the top left.

        A first line, which starts with ``#``, says how much of the score comes from inside a patch.
        """
        height, width = self.entropy.shape
        cells = ((row, column) for row in range(height) for column in range(width))
        lines = (f"{row + 1},{column + 1}: {self.mixture(row, column)}\n" for row, column in cells)
        return f"# {self.evidence}\n" + "".join(lines)

    def heat(self, name: str | None = None) -> Floats:
        """A class's smooth heat map on the photograph: ``(H, W)``, NaN outside the box. Default: the head's class.

        It is the best of the cheap maps in docs/judge.md that the network has. If the network has no map
        that explains the answer, it is the patches' probability.
        """
        label = self._label(name)
        if self.answer_maps is None:
            return smooth_map(self.patch_probabilities[:, :, label], self.window, self.box, self._shape)
        return smooth_map(self.answer_maps.of(label), (1, 1), self.box, self._shape)

    @property
    def map_name(self) -> str:
        """What the heat maps show, and what they explain."""
        if self.answer_maps is None:
            return "prediction of the patches (explains their vote)"
        return f"{self.answer_maps.name} (explains the answer)"

    @property
    def hottest(self) -> float:
        """The end of the colour scale of heat maps, the same for all photographs."""
        return 1.0 if self.answer_maps is None else self.answer_maps.hottest

    @property
    def power(self) -> float:
        """The power of the colour scale; at 1 it is linear."""
        return 1.0 if self.answer_maps is None else POWER

    def overlay(self, name: str | None = None) -> UInt8:
        """The photograph under the heat map of a class, in its own size: ``(H, W, 3)``. Default: the head's class."""
        return overlay(self.photo, self.heat(name), self.hottest, self.power)

    def figure(self) -> Any:
        """The whole explanation as a matplotlib figure."""
        from tembed.lab.analysis.explanation_figure import draw

        return draw(self)

    def _label(self, name: str | None) -> int:
        if name is None:
            return int(self.probabilities.argmax())
        if name not in self.classes:
            raise TembedError(f"{name!r} is not a class of this network; its classes: {', '.join(self.classes)}")
        return self.classes.index(name)

    @property
    def _shape(self) -> tuple[int, int]:
        height, width = self.photo.shape[:2]
        return height, width

    def __repr__(self) -> str:
        height, width = self.entropy.shape
        return f"Explanation({self.name}: {self.verdict}; {height}x{width} patches, {len(self.classes)} classes)"


def explain(
    source: Loadable,
    images: Given | Iterable[Given],
    *,
    accelerator: str = "auto",
    window: Window = "nominal",
    effective_field: EffectiveField | None = None,
) -> list[Explanation]:
    """Explain pictures of any size with a trained network.

    Args:
        source: a run, a weights file, shipped weights, or a model that `tembed.load` returned.
        images: paths (a folder stands for all images in it), Pillow images, or uint8 arrays ``(H, W, 3)``. A picture
            becomes a square in the same way as those that the network was trained on; by default its centre is kept.
        accelerator: "cpu", "cuda", "mps", or "auto" for a GPU if there is one.
        window: "nominal" draws a patch as the block's window, "effective" as the smallest window that holds half of
            the evidence.
        effective_field: what `effective_field` returned for this network; by default what an analysis of ``source``
            stored.
    """
    found = each_explanation(source, images, accelerator=accelerator, window=window, effective_field=effective_field)
    return list(found)


def each_explanation(
    source: Loadable,
    images: Given | Iterable[Given],
    *,
    accelerator: str = "auto",
    window: Window = "nominal",
    effective_field: EffectiveField | None = None,
    broken: list[str] | None = None,
) -> Iterator[Explanation]:
    """Like `explain`, but one at a time. With a list ``broken``, pictures that cannot be read are added to it."""
    network = as_network(source, accelerator)
    if not any(isinstance(module, PatchScores) for module in network.modules()):
        model = network.description.model or "a network"
        raise TembedError(
            f"{name_of(source)} is {model}, which has no block and so nothing to explain: give a run of an -embed or "
            "-aux network, or take the map 'cam' of tembed.lab.analysis.ATTRIBUTIONS"
        )
    if effective_field is None:
        effective_field = stored_effective_field(source, network)
    if window == "effective" and effective_field is None:
        raise TembedError(
            f"`window` is 'effective', but the effective field of {name_of(source)} was not measured: run tembed "
            "analyze on it, or give `effective_field`"
        )
    given = all_given(images)
    paths = [one for one in given if isinstance(one, str | Path)]
    names = dict(zip(paths, short_names(paths), strict=True))
    for number, one in enumerate(given, 1):
        try:
            picture = read_picture(one, network.description.input_size, network.description.fit, f"image-{number}")
        except TembedError as error:
            if broken is None:
                raise
            broken.append(str(error))
            continue
        if isinstance(one, str | Path):
            picture = picture._replace(name=names[one])
        yield replace(explain_picture(network, picture), effective_field=effective_field, shown=window)


def explain_picture(network: AnyNetwork, picture: Picture) -> Explanation:
    """Explain one picture that has been read for this network."""
    zero = torch.zeros(1, dtype=torch.int64)
    images = ImageSet(picture.pixels[None], zero, network.description.classes, indices=zero)
    found = extract_features(network, images)
    assert found.softmax is not None
    assert found.entropy is not None
    attribution, answer_maps = best_attribution(network), None
    if attribution.explains == "answer":
        mean, std = network.description.normalisation
        x = normalised(picture.pixels[None], mean, std).to(next(network.parameters()).device)

        @cache
        def of(label: int) -> Floats:
            found: Floats = attribution(network, x, torch.tensor([label], device=x.device))[0]
            return found

        hottest = HOTTEST_GRADIENT if "gradient" in attribution.needs else HOTTEST_ACTIVATION
        answer_maps = AnswerMaps(attribution.name, of, hottest)
    return Explanation(
        name=picture.name,
        classes=network.description.classes,
        photo=picture.photo,
        box=picture.box,
        image=picture.pixels,
        patch_probabilities=found.softmax.reshape(*found.map_size, -1),
        entropy=found.entropy.reshape(found.map_size),
        probabilities=torch.from_numpy(found.logits[0]).softmax(0).numpy(),
        window=found.window,
        answer_maps=answer_maps,
    )
