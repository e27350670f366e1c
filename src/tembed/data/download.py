"""Fetches one file over HTTP: checksum, progress, and going on where an earlier try stopped."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from tembed.data.reporting import SILENT, Reporter
from tembed.errors import TembedError

CONNECT_SECONDS = 10
TRIES = 5
CHUNK = 1 << 18


def download(
    url: str, target: Path, md5: str, reporter: Reporter = SILENT, timeout: float = CONNECT_SECONDS
) -> Path:
    """``target`` with the content of ``url``. What arrived before a failure waits in ``target.part``."""
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(TRIES)):
        before = _size(part)
        try:
            if _fetch(url, part, reporter, timeout):
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


def _fetch(url: str, part: Path, reporter: Reporter, timeout: float) -> bool:
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
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
            f"bytes {start}-"
        )
        start = start if resumed else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else 0
        with part.open("ab" if resumed else "wb") as file:
            done = start
            while chunk := answer.read1(CHUNK):
                file.write(chunk)
                done += len(chunk)
                reporter.progress("downloading", done, total)
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
