"""Tensors and plain values in one safetensors file that carries its own checksum.

Reading such a file never executes anything: it holds bytes with shapes, and one JSON text under the key ``tembed`` of
the metadata. Any safetensors reader opens it; this one also detects a flipped bit.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from tembed.common.errors import TembedError
from tembed.common.files import check_regular, parse_json

KEY = "tembed"  # the only key: safetensors would write several in no fixed order


def checksummed_bytes(tensors: Mapping[str, Tensor], record: dict[str, Any]) -> bytes:
    """The content of a file with these tensors and this record of JSON values. Equal inputs give equal bytes."""
    plain = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    metadata = {KEY: json.dumps({"record": text, "sha256": checksum(plain, text)})}
    return save(plain, metadata)


def read_checksummed(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the record of a file. Raises `TembedError` if it is missing, damaged or not of this ``kind``."""
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = parse_json((file.metadata() or {})[KEY])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        text, expected = metadata["record"], metadata["sha256"]
        found = checksum(tensors, text)
        record = parse_json(text)
    except Exception as error:  # the reader and JSON raise many types on damaged files
        what = f"no {KEY} record in it" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise TembedError(f"{path} cannot be read as {kind} written by tembed ({what})") from None
    if found != expected:
        raise TembedError(f"{path} is damaged: its content does not match its checksum")
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise TembedError(f"{path} does not hold {kind} written by tembed")
    return tensors, record


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """sha256 of the tensors' names, types, shapes and values, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
