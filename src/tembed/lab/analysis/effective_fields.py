"""How much of a patch's score comes from inside a window of each size, on this network and these images.

A patch is shown as a window of the image, but its score also depends on what is around the window, as far as the
receptive field reaches. To measure how much, the inside of an image is put into the surroundings of other images. The
variance of the score over insides and surroundings is the sum of two parts (a one-way analysis of variance): what
follows from the inside, and what changes when the surroundings are exchanged. The first, as a share of the sum, is the
share of the score that comes from inside: a mean over the positions of the map, which differ, because images show much
in their middle and little at their borders. The score is that of the class that the patch predicts in its own image.

Such an image has a seam, and a network may react to the seam itself rather than to what is around the window. So there
is a control, ``seam``: the same inside in the same surroundings, with a sharp edge and with one that is blended over
two pixels. Half of the mean squared change of the score, as a share of the same variance, is what the sharpness of the
edge accounts for. If the seam were the reason why little comes from inside, it would be as large as the share that is
missing. The blended pixels show more of the inside, so it overestimates the effect.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tembed.attachment.receptive_fields import receptive_fields
from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.images.pixels import normalised
from tembed.lab.analysis.features import BATCH, patch_span, window_of
from tembed.lab.data.image_set import ImageSet
from tembed.trained.checksummed import checksum
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork

POSITIONS, INSIDES, SURROUNDINGS = 16, 12, 3
"""Positions of the map, images whose insides are kept at each of them, and surroundings of each, at most."""
BLEND = 2
"""Pixels around the window that are blended for the control of the seam."""
ALL = 0.995
"""No window is enlarged further once this share comes from inside."""
FACTOR = 1.96
"""Standard errors on each side of a 95 % interval."""
FEWEST = 4
"""Images that are needed."""

Scores = NDArray[np.float64]
Window = Literal["nominal", "effective"]
"""Which window of a patch is shown: the block's, or the smallest one that holds half of the evidence."""


@dataclass(frozen=True)
class WindowShare:
    """The share of the score that comes from inside a window of ``size`` pixels, with its 95 % interval.

    ``margin``: how far the window reaches beyond the patch on each side, in pixels; negative for a smaller one.
    ``seam``: what the seam accounts for, as a share of the same variance.
    """

    size: tuple[int, int]
    margin: int
    inside: float
    low: float
    high: float
    seam: float


@dataclass(frozen=True)
class EffectiveField:
    """The shares of windows around the patches, the smallest first, and the number of images behind them.

    ``patch``: the window that a patch is nominally, in pixels. ``field``: the receptive field of its score, None if it
    sees the whole image. ``weights``: a checksum of the network's weights.
    """

    patch: tuple[int, int]
    field: tuple[int, int] | None
    windows: tuple[WindowShare, ...]
    positions: int
    insides: int
    surroundings: int
    weights: str

    @property
    def n(self) -> int:
        """The number of patches."""
        return self.insides * self.positions

    @property
    def nominal(self) -> WindowShare:
        return next(one for one in self.windows if one.margin == 0)

    @property
    def half(self) -> WindowShare:
        """The smallest window that holds half of the evidence."""
        return next((one for one in self.windows if one.inside >= 0.5), self.windows[-1])

    def view(self, window: Window = "nominal") -> "PatchView":
        """How to show the patches, with a caption that says how much of the evidence is in the picture."""
        shown, half = self.half if window == "effective" else self.nominal, self.half
        caption = f"{pixels(shown.size)} shown; {shown.inside:.0%} of the score comes from here"
        if half.margin < shown.margin:
            caption += f", {half.inside:.0%} from the outlined {pixels(half.size)}"
            return PatchView(shown.margin, half.margin, caption)
        if half.margin > shown.margin:
            caption += f"; {pixels(half.size)} hold {half.inside:.0%}"
        return PatchView(shown.margin, None, caption)

    @property
    def note(self) -> str:
        """The measurement in two sentences."""
        one, half = self.nominal, self.half
        sees = "the whole image" if self.field is None else pixels(self.field)
        return (
            f"A patch is {pixels(one.size)} wide, and {one.inside:.0%} of its score [{one.low:.0%}, {one.high:.0%}] "
            f"comes from there (n = {self.n} patches; at most {one.seam:.0%} is an effect of cutting it out). "
            f"{pixels(half.size)} hold {half.inside:.0%}; a patch can see {sees}."
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PatchView:
    """Which window of each patch a figure shows.

    ``margin``: pixels of the image on each side of the patch. ``outline``: the same of a smaller window that is drawn
    as an outline, or None. ``caption``: how much of the evidence the shown window holds.
    """

    margin: int = 0
    outline: int | None = None
    caption: str = ""

    def outlined(self, picture: UInt8, side: int) -> Image.Image:
        """The picture of a patch, ``side`` pixels wide, with the outline."""
        made = Image.fromarray(picture).resize((side, side), Image.Resampling.BICUBIC)
        if self.outline is not None:
            inset = self.margin - self.outline
            down, across = (round(side * inset / length) for length in picture.shape[:2])
            draw = ImageDraw.Draw(made)
            draw.rectangle((across - 1, down - 1, side - across, side - down), outline=(0, 0, 0))
            draw.rectangle((across, down, side - across - 1, side - down - 1), outline=(255, 255, 255))
        return made


def pixels(size: tuple[int, int]) -> str:
    """``16 px``, or ``16x24 px``."""
    return f"{'x'.join(map(str, dict.fromkeys(size)))} px"


def read_effective_field(record: Mapping[str, Any]) -> EffectiveField:
    """An effective field from its JSON values."""
    windows = tuple(WindowShare(**one | {"size": tuple(one["size"])}) for one in record["windows"])
    field = record["field"]
    sizes = {"patch": tuple(record["patch"]), "field": None if field is None else tuple(field)}
    return EffectiveField(**{**record, **sizes, "windows": windows})


# --- measuring


def effective_field(
    network: AnyNetwork,
    images: ImageSet,
    *,
    positions: int | None = None,
    insides: int | None = None,
    surroundings: int = SURROUNDINGS,
    seed: int = 0,
    progress: Progress = SILENT,
) -> EffectiveField:
    """Measure a network with patch scores on some images, which ``seed`` chooses.

    ``positions``: of the patches that lie inside the image, by default `POSITIONS`. ``insides``: images at each
    position whose inside is kept, by default `INSIDES`. ``surroundings``: other images around each of them. There are
    fewer of each if there are fewer images.
    """
    if not isinstance(network.block, FeatureEmbedding | DeepSupervision):
        raise TembedError(f"{network.description.model} has no patch scores, so its patches have no effective field")
    if len(images) < FEWEST:
        raise TembedError(f"an effective field needs {FEWEST} or more images, and there are {len(images)}")
    network.eval()
    insides, positions = min(insides or INSIDES, len(images)), positions or POSITIONS
    rng = np.random.default_rng(seed)
    map_size = _scores(network, images.pixels([0])).shape[1:3]
    spans = _spans(map_size, window_of(network.block, map_size), images.size)
    places = [
        _drawn(network, images, span, insides, min(surroundings, len(images) - 1), rng)
        for span in rng.permutation(spans)[:positions]
    ]
    score = next(name for name, module in network.named_modules() if module is network.block.match)
    (field,) = receptive_fields(network, images.size, [score]).values()
    patch = (int(spans[0][2] - spans[0][0]), int(spans[0][3] - spans[0][1]))
    found: list[WindowShare] = []
    margins = _margins(patch, images.size, map_size)
    for number, margin in enumerate(margins):
        progress.update("effective field", number, len(margins))
        tables, changes = zip(*(_measured(network, place, margin) for place in places), strict=True)
        found.append(_share(patch, margin, np.stack(tables), np.stack(changes)))
        if margin >= 0 and found[-1].inside >= ALL:
            break
    progress.update("effective field", len(margins), len(margins))
    count, around = places[0].outer.shape[:2]
    return EffectiveField(patch, field.size, tuple(found), len(places), count, around, checksum(network.state_dict()))


@dataclass(frozen=True)
class _Place:
    """A position of the map, and the images for it.

    ``span``: top, left, bottom and right of its patch, row and column. ``inner``: ``(insides, H, W, 3)``. ``outer``:
    ``(insides, surroundings, H, W, 3)``. ``classes``: what the patch predicts in each image.
    """

    span: Int64
    inner: UInt8
    outer: UInt8
    classes: Int64


def _drawn(
    network: AnyNetwork, images: ImageSet, span: Int64, insides: int, surroundings: int, rng: np.random.Generator
) -> _Place:
    chosen = rng.permutation(len(images))[:insides]
    others = np.stack([rng.choice(np.delete(np.arange(len(images)), one), surroundings, False) for one in chosen])
    inner = images.pixels(chosen)
    outer = images.pixels(others.ravel()).reshape(insides, surroundings, *inner.shape[1:])
    classes = _scores(network, inner)[:, span[4], span[5]].argmax(1)
    return _Place(span, inner, outer, classes)


def _measured(network: AnyNetwork, place: _Place, margin: int) -> tuple[Scores, Scores]:
    """The scores in exchanged surroundings, and how a blended edge changes those of the first surroundings.

    Both are of the classes that the patches predict: ``(insides, surroundings, insides)`` and ``(insides,)``.
    """
    row, column = place.span[4:]
    found = []
    for outer, blend in ((place.outer, 0), (place.outer[:, :1], BLEND)):
        mask = _mask(place.inner.shape[1:3], place.span, margin, blend)
        made = np.rint(mask * place.inner[:, None] + (1 - mask) * outer).astype(np.uint8)
        scores = _scores(network, made.reshape(-1, *made.shape[2:]))[:, row, column]
        found.append(scores.reshape(*made.shape[:2], -1))
    each = np.arange(len(place.classes))
    sharp, blended = (scores[each, 0, place.classes] for scores in found)
    return found[0][:, :, place.classes], blended - sharp


def _spans(map_size: tuple[int, int], window: tuple[int, int], size: tuple[int, int]) -> Int64:
    """Top, left, bottom and right of the patches that lie inside the image, and their row and column: ``(n, 6)``.

    All patches if none lies inside.
    """
    found = []
    for row in range(map_size[0]):
        for column in range(map_size[1]):
            (top, bottom), (left, right) = (
                patch_span(index, k, side / cells)
                for index, k, side, cells in zip((row, column), window, size, map_size, strict=True)
            )
            found.append((top, left, bottom, right, row, column))
    spans = np.array(found)
    inside = (spans[:, :2] >= 0).all(1) & (spans[:, 2:4] <= size).all(1)
    return spans[inside] if inside.any() else spans


def _margins(patch: tuple[int, int], size: tuple[int, int], map_size: tuple[int, int]) -> range:
    """Margins in steps of half a position of the map: from the smallest window to the whole image."""
    step = max(1, min(side // cells for side, cells in zip(size, map_size, strict=True)) // 2)
    least = -((min(patch) - 1) // 2 // step) * step
    return range(least, max(size) + step, step)


def _mask(size: tuple[int, int], span: Int64, margin: int, blend: int) -> NDArray[np.float32]:
    """1 inside the window, 0 outside, and in between on ``blend`` pixels around it: ``(H, W, 1)``."""
    far = []
    for side, first, end in zip(size, span[:2], span[2:4], strict=True):
        index = np.arange(side)
        far.append(np.maximum(np.maximum(first - margin - index, index - (end + margin - 1)), 0))
    distance = np.maximum(far[0][:, None], far[1][None, :])
    return np.clip(1 - distance / (blend + 1), 0, 1).astype(np.float32)[..., None]


@torch.no_grad()
def _scores(network: AnyNetwork, images: UInt8) -> Scores:
    """The scores of all patches: ``(n, h, w, C)``. What follows the block is not computed."""
    assert network.block is not None
    device = next(network.parameters()).device
    mean, std = network.description.normalisation
    found = []
    with reproducible(device):
        torch.manual_seed(0)
        for start in range(0, len(images), BATCH):
            f = network.features(normalised(images[start : start + BATCH], mean, std).to(device))
            scores = network.block.steps(f).scores
            assert scores is not None
            found.append(scores.permute(0, 2, 3, 1).cpu().double())
    return torch.cat(found).numpy()


# --- variances


def _share(patch: tuple[int, int], margin: int, tables: Scores, changes: Scores) -> WindowShare:
    """The shares of one window: means over the positions, whose spread gives the interval.

    ``tables``: ``(positions, insides, surroundings, insides)``; the last axis is the class that each patch predicts.
    ``changes``: ``(positions, insides)``, those of the score of that class with a blended edge.
    """
    outside = tables.var(2, ddof=1).mean((1, 2))
    inside = tables.mean(2).var(1, ddof=1).mean(1) - outside / tables.shape[2]  # without the part that is by chance
    total = inside + outside
    varies = total > 0
    shares = np.where(varies, inside / np.where(varies, total, 1), 1.0)
    seam = np.where(varies, np.square(changes).mean(1) / 2 / np.where(varies, total, 1), 0.0)
    share, count = float(np.clip(shares.mean(), 0, 1)), len(shares)
    reach = float(FACTOR * shares.std(ddof=1) / np.sqrt(count)) if count > 1 else 1.0  # one position shows no spread
    size = (patch[0] + 2 * margin, patch[1] + 2 * margin)
    return WindowShare(size, margin, share, max(0.0, share - reach), min(1.0, share + reach), float(seam.mean()))
