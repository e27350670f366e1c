"""An attached block in use: switched off for a while, looked at, saved and loaded without its network."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor, nn

from tembed.attachment.attached import Attached, Block
from tembed.attachment.attaching import attach, detach
from tembed.attachment.dry_run import Example
from tembed.block import FeatureEmbedding, changed_mixing, shortcut_of
from tembed.common.errors import TembedError, first_line
from tembed.common.files import read_file, write_file
from tembed.common.modes import evaluation_mode

KIND = "tembed block"
BATCH = 64


@contextmanager
def disabled(model: Attached) -> Iterator[None]:
    """Within the ``with``, the network computes what it would without the block, and returns no scores."""
    block_call = _attached(model).block_call
    block, block_call.block = block_call.block, None
    try:
        yield
    finally:
        block_call.block = block


@dataclass(frozen=True)
class Status:
    """Where a block is and how large it is. Given images, also what it does to their predictions.

    ``changed``: how many of the ``images`` are classified differently if ``f'`` is zero. ``share``: the part of the
    variance of the block's output that ``f'`` has. Both are None without images, or if nothing is fed back.
    """

    at: str
    kind: str
    layout: str
    classes: int
    parameters: int
    network_parameters: int
    enabled: bool
    images: int = 0
    changed: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        state = "" if self.enabled else ", disabled"
        lines = [
            f"{self.kind} block behind {self.at} ({self.layout}), {self.classes} classes{state}",
            f"{self.parameters:,} parameters beside the network's {self.network_parameters:,}",
        ]
        if self.changed is not None and self.share is not None:
            lines.append(
                f"without f', {self.changed} of {self.images} images are classified differently; f' has "
                f"{self.share:.1%} of the variance of the block's output"
            )
            if not self.changed:
                lines.append("the block is idle on these images: it reads, and what it writes changes no answer")
        return "\n".join(lines)


def status(model: Attached, images: Tensor | None = None) -> Status:
    """What is attached to a network. ``images``: normalised images ``(N, 3, H, W)`` that show whether it is at work."""
    block = _attached(model).block
    if block is None:
        raise TembedError("this network has no block: it was attached with block='none'")
    own = sum(p.numel() for p in block.parameters())
    known: dict[str, Any] = {}
    if images is not None and isinstance(block, FeatureEmbedding):
        known = _at_work(model, block, images)
    return Status(
        at=model.at,
        kind="embed" if isinstance(block, FeatureEmbedding) else "aux",
        layout=model.layout.kind,
        classes=model.num_classes,
        parameters=own,
        network_parameters=sum(p.numel() for p in model.model.parameters()),
        enabled=model.block_call.block is not None,
        **known,
    )


@torch.no_grad()
def _at_work(model: Attached, block: FeatureEmbedding, images: Tensor) -> dict[str, Any]:
    """How many predictions change without ``f'``, and its share of the variance."""
    device, changed = next(block.parameters()).device, 0
    written: list[Tensor] = []
    others: list[Tensor] = []
    with evaluation_mode(model):
        for batch in images.to(device).split(BATCH):
            trace = model.trace(batch)
            assert trace.embedding is not None
            written.append(trace.embedding.double().cpu())
            others.append(shortcut_of(trace.block_output, trace.embedding).double().cpu())
            with changed_mixing(block, torch.zeros_like):
                without = model(batch).logits
            changed += int((without.argmax(1) != trace.logits.argmax(1)).sum())
    own, other = (torch.cat(maps).var((0, 2, 3), correction=0).sum().item() for maps in (written, others))
    return {"images": len(images), "changed": changed, "share": own / (own + other) if own + other else 0.0}


# --- the block alone, on disk


def save_block(model: Attached, path: str | Path) -> Path:
    """Write the block alone, without the network: kilobytes that `load_block` attaches again. Returns the path."""
    block, path = _attached(model).block, Path(path)
    if block is None:
        raise TembedError("this network has no block to save: it was attached with block='none'")
    for name, value in model.block_options.items():
        if isinstance(value, nn.Module):
            raise TembedError(f"`{name}` of this block is a module, which a file cannot describe: save the network")
    about = {
        "at": model.at,
        "num_classes": model.num_classes,
        "layout": model.layout.kind,
        "prefix_tokens": model.layout.prefix,
        "grid": model.layout.grid,
        "image_size": model.image_size,
        "options": model.block_options,
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in block.state_dict().items()}
    write_file(path, save(tensors, {"kind": KIND, "about": json.dumps(about)}))
    return path


def load_block(model: nn.Module, path: str | Path, *, at: str | None = None, example: Example = None) -> Attached:
    """Attach a block that `save_block` wrote to a network with a submodule like the one that it was behind.

    ``at``: another submodule than the one that the file names. ``example``: as for `attach`.
    """
    tensors, about = _read(Path(path))
    known = about["layout"] == "tokens"
    attached = attach(
        model,
        at or about["at"],
        about["num_classes"],
        example=example,
        start="paper",
        layout=about["layout"],
        prefix_tokens=about["prefix_tokens"] if known else None,
        grid=tuple(about["grid"]) if about["grid"] else None,
        **about["options"],
    )
    attached.image_size = about["image_size"]
    block = attached.block
    assert block is not None
    try:
        block.load_state_dict(tensors)
    except RuntimeError as error:
        detach(attached)
        where = f"behind {attached.at!r} of {type(model).__name__}"
        raise TembedError(
            f"{path} does not fit {where} ({_mismatch(block, tensors, error)}): give the network and the submodule "
            "that it was trained with"
        ) from None
    return attached


def _mismatch(block: Block, tensors: dict[str, Tensor], error: Exception) -> str:
    """The first tensor with another shape, or else what torch says."""
    for name, value in block.state_dict().items():
        if name in tensors and tensors[name].shape != value.shape:
            return f"{name} has the shape {tuple(tensors[name].shape)} instead of {tuple(value.shape)}"
    return first_line(error)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    content = read_file(path)
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(content[8 : 8 + size])["__metadata__"]
        if about["kind"] != KIND:
            raise ValueError(f"it is a {about['kind']}")
        return load_tensors(content), json.loads(about["about"])
    except Exception as error:  # the reader raises many types on damaged files
        raise TembedError(f"{path} is not a block of tembed.save_block ({first_line(error)}): copy it again") from None


def _attached(model: Any) -> Attached:
    if not isinstance(model, Attached):
        raise TembedError(f"`model` is a {type(model).__name__}; it must be what tembed.attach returned")
    return model
