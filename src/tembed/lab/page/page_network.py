"""The network and its runtime as classic scripts, which the page loads when an image is dropped."""

import gzip
import tempfile
from pathlib import Path

from torch import nn

from tembed.lab.page.encoding import STATIC, base64_text
from tembed.trained.onnx_file import to_onnx

VENDOR = STATIC / "vendor" / "onnxruntime-web"


def network_scripts(model: nn.Module) -> dict[str, bytes]:
    """The files below the page's folder, by name: ONNX Runtime Web, its loader and binary, and the network."""
    with tempfile.TemporaryDirectory() as folder:
        content = to_onnx(model, Path(folder) / "network.onnx").path.read_bytes()
    runtime = (VENDOR / "ort.wasm.min.js").read_text("utf-8")
    lines = [line for line in runtime.splitlines() if not line.startswith("//# sourceMappingURL")]
    loader = (VENDOR / "ort-wasm-simd-threaded.mjs").read_bytes()
    binary = (VENDOR / "ort-wasm-simd-threaded.wasm.gz").read_bytes()
    return {
        "network/runtime.js": "\n".join(lines).encode() + b"\n",
        "network/wasm.js": _packed("loader", loader) + _packed("wasm", binary),
        "network/model.js": _packed("model", gzip.compress(content, 6, mtime=0)),
        "network/LICENSE": (VENDOR / "LICENSE").read_bytes(),
    }


def _packed(name: str, content: bytes) -> bytes:
    return f'tembed.packed.{name} = "{base64_text(content)}";\n'.encode()
