"""`describe`: what a network of one's own needs to be used like a trained one of this package."""

from collections.abc import Sequence
from dataclasses import replace

from tembed.attachment.attached import Attached
from tembed.common.arrays import Fit
from tembed.common.errors import TembedError
from tembed.models.description import Description
from tembed.models.foreign import parse_foreign
from tembed.models.network import Network
from tembed.trained.hub import completed


def describe(
    model: Network | Attached,
    *,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    size: int,
    fit: Fit = "crop",
    built_by: str | None = None,
) -> Network | Attached:
    """Tell a network what its images and classes are, so that `predict`, `explain` and `save_pretrained` take it.

    Args:
        model: a network of `tembed.attach` or `tembed.create_model`, with weights from anywhere. It is also returned.
        classes: the names of the classes, in the order of the logits.
        mean: mean of each channel, of pixels from 0 to 1, that images are normalised with.
        std: their standard deviations.
        size: shorter side of the images in pixels.
        fit: how an oblong picture becomes a square: "crop", "pad" or "stretch".
        built_by: what builds the network that the block is attached to, as ``my.module:function`` or ``timm:name``, so
            that `tembed.load` can build it again. Only `save_pretrained` needs it.
    """
    if not isinstance(model, Network | Attached):
        raise TembedError(
            f"`model` is a {type(model).__name__}; it must be what tembed.attach or tembed.create_model returned"
        )
    if size < 1 or fit not in ("crop", "pad", "stretch"):
        raise TembedError(f"`size` is {size} and `fit` is {fit!r}; give a side in pixels, and crop, pad or stretch")
    if min(std) <= 0 or len(mean) != 3 or len(std) != 3:
        raise TembedError(f"`mean` is {mean} and `std` is {std}; each has three numbers, and `std` positive ones")
    known: Description = model.description
    if built_by is not None:
        if not isinstance(model, Attached):
            raise TembedError("`built_by` is for attached networks; leave it out")
        options = dict(model.block_options)
        name = parse_foreign(f"{built_by}@{model.at}:{options.pop('block')}")
        if model.image_size is not None:
            options["image_size"] = model.image_size
        known = replace(known, model=str(name), options=options)
    described = replace(completed(known, model, classes, mean, std), input_size=size, fit=fit)
    model.description = described
    return model
