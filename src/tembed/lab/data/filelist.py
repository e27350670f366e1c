"""The files that a stored dataset was imported from: ``files.sha256``, one line for each image.

A line is the sha256 of the file and its name relative to the imported folder, in the format of ``sha256sum``. The list
is no part of the dataset's own sha256, so the same images under other names are the same dataset. Datasets that were
stored before there was a list, or from files with many images each, have none.
"""

import hashlib
import re
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.files import read_file
from tembed.lab.data.readers.reading import SourceFile

FILE_LIST = "files.sha256"
MOST_BYTES = 1 << 30
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def file_line(file: SourceFile) -> str:
    """The line of an image."""
    return f"{file.sha256}  {file.name}\n"


def check_file_list(folder: Path, sha256: str) -> None:
    """Raise `TembedError` unless the list has this sha256."""
    path = folder / FILE_LIST
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(path, error) from None
    if found != sha256:
        raise TembedError(f"{path} has changed since it was stored: import the dataset again")


def read_file_list(folder: Path, count: int, sha256: str) -> list[SourceFile]:
    """The files of ``count`` images, from a list with this sha256."""
    check_file_list(folder, sha256)
    path = folder / FILE_LIST
    try:
        lines = [_LINE.fullmatch(line) for line in read_file(path, MOST_BYTES).decode().split("\n")[:-1]]
    except (OSError, UnicodeError) as error:
        raise _damaged(path, error) from None
    files = [SourceFile(line[2], line[1]) for line in lines if line is not None]
    if len(files) != count:
        raise TembedError(f"{path} does not have a line for each image: import the dataset again")
    return files


def _damaged(path: Path, error: Exception) -> TembedError:
    return TembedError(f"{path} is missing or damaged ({error}): import the dataset again")
