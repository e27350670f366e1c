"""A folder, a zip or a tar as one thing: names and bytes. Nothing is ever unpacked onto the disk.

Hidden files and the leavings of operating systems are not seen. Archive members that point outside
(``..``, absolute paths, links) refuse the whole archive by name, and so does content that is absurdly larger
than the file it is packed in.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from tembed.errors import TembedError, one_line

MAX_ENTRIES = 5_000_000
JUNK = frozenset({"__macosx", "thumbs.db", "desktop.ini", "$recycle.bin"})


class Tree(Protocol):
    """``path`` as the user gave it; ``names`` with ``/`` between folders, sorted."""

    path: Path
    names: tuple[str, ...]

    def size(self, name: str) -> int: ...

    def open(self, name: str) -> IO[bytes]: ...


def where(tree: Tree, name: str) -> str:
    """How errors call a member."""
    return str(tree.path) if tree.path.name == name else f"{tree.path}: {name}"


def open_member(tree: Tree, name: str) -> IO[bytes]:
    """A member as a stream, or a clear error."""
    try:
        return tree.open(name)
    except TembedError:
        raise
    except Exception as error:  # zipfile and tarfile raise many types on damaged members
        raise TembedError(f"{where(tree, name)} cannot be read ({_reason(error)})") from None


def read(tree: Tree, name: str) -> bytes:
    """A member's bytes, or a clear error."""
    with open_member(tree, name) as stream:
        try:
            return stream.read()
        except Exception as error:
            raise TembedError(f"{where(tree, name)} cannot be read ({_reason(error)})") from None


@contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """The tree at ``path``: a folder, a zip, a tar (plain, gz, bz2 or xz), or a single pickle."""
    with ExitStack() as stack:
        try:
            tree = _tree(path, stack)
        except (TembedError, KeyboardInterrupt):
            raise
        except OSError as error:
            raise TembedError(f"{path} cannot be read ({_reason(error)})") from None
        except Exception as error:  # a damaged archive can raise anything
            raise TembedError(f"{path} is a damaged archive ({_reason(error)}): fetch a fresh copy") from None
        yield tree


def _tree(path: Path, stack: ExitStack) -> Tree:
    if path.is_dir():
        return _Folder(path)
    if not path.exists():
        raise TembedError(f"{path} does not exist")
    if path.suffix.lower() in (".pkl", ".pickle"):
        return _SingleFile(path)
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"PK":
        return _Zip(path, stack.enter_context(zipfile.ZipFile(path)))
    packed = plain_tar(path, stack)
    if packed is None:
        raise TembedError(f"{path} is neither a folder nor a zip or tar archive (or it is damaged)")
    return _Tar(path, stack.enter_context(tarfile.open(fileobj=packed, mode="r:")), packed)


def _reason(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return one_line(said or str(error) or type(error).__name__)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part.lower() in JUNK for part in name.split("/"))


def _printable(name: str) -> str:
    """File names that are not UTF-8 or hold control characters keep a printable, unambiguous form."""
    return one_line(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def _safe(path: Path, name: str) -> str:
    """The member's name without ``./``; a name that points outside refuses the archive."""
    plain = _printable(name.replace("\\", "/"))
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if ".." in parts or plain.startswith("/") or plain[1:3] == ":/":
        raise TembedError(f"{path} has the member {plain!r}, which points outside the archive: refused")
    return "/".join(parts)


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, str] = {}
        seen: set[str] = set()
        for folder, folders, files in os.walk(path, followlinks=True, onerror=_raise):
            real = os.path.realpath(folder)
            folders[:] = [] if real in seen else [one for one in folders if not _hidden(one)]
            if real in seen:  # a link that leads back
                continue
            seen.add(real)
            start = os.path.relpath(folder, path)
            for file in files:
                name = file if start == "." else f"{start.replace(os.sep, '/')}/{file}"
                if not _hidden(name):
                    self._files[_printable(name)] = os.path.join(folder, file)
        self.names = tuple(sorted(self._files))

    def size(self, name: str) -> int:
        return os.path.getsize(self._files[name])

    def open(self, name: str) -> IO[bytes]:
        if not stat.S_ISREG(os.stat(self._files[name]).st_mode):
            raise TembedError(f"{self._files[name]} is not a regular file: remove it")
        return open(self._files[name], "rb")


def _raise(error: OSError) -> None:
    raise TembedError(f"{error.filename} cannot be read ({_reason(error)})")


class _SingleFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: tuple[str, ...] = (path.name,)

    def size(self, name: str) -> int:
        return self.path.stat().st_size

    def open(self, name: str) -> IO[bytes]:
        return self.path.open("rb")


class _Zip:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        self._members: dict[str, zipfile.ZipInfo] = {}
        _check_entries(path, len(archive.filelist))
        for member in archive.infolist():
            name = _safe(path, _zip_name(member))
            if stat.S_ISLNK(member.external_attr >> 16):
                raise TembedError(f"{path} has the member {name!r}, which is a link: refused")
            if name and not member.is_dir() and not _hidden(name):
                self._members[name] = member
        too_large(path, sum(member.file_size for member in archive.infolist()))
        self.names = tuple(sorted(self._members))

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def open(self, name: str) -> IO[bytes]:
        return self._archive.open(self._members[name])


def _zip_name(member: zipfile.ZipInfo) -> str:
    """Some packers write UTF-8 names without saying so; zipfile then reads them as code page 437."""
    if member.flag_bits & 0x800:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename


class _Tar:
    def __init__(self, path: Path, archive: tarfile.TarFile, file: IO[bytes]) -> None:
        self.path, self._archive = path, archive
        self._members: dict[str, tarfile.TarInfo] = {}
        end = total = 0
        for count, member in enumerate(archive):
            _check_entries(path, count)
            name = _safe(path, member.name)
            if member.islnk() or member.issym():
                raise TembedError(f"{path} has the member {name!r}, which is a link: refused")
            if not (member.isfile() or member.isdir()) or member.issparse():
                raise TembedError(f"{path} has the member {name!r}, which is not a plain file: refused")
            total += member.size
            end = member.offset_data + (member.size + 511) // 512 * 512
            if name and member.isfile() and not _hidden(name):
                self._members[name] = member
        too_large(path, total)
        file.seek(end)
        if file.read(512) != bytes(512):
            raise TembedError(f"{path} is cut off (no end mark): fetch a fresh copy")
        self.names = tuple(sorted(self._members))

    def size(self, name: str) -> int:
        return self._members[name].size

    def open(self, name: str) -> IO[bytes]:
        stream = self._archive.extractfile(self._members[name])
        assert stream is not None, "only regular files are listed"
        return stream


def _check_entries(path: Path, count: int) -> None:
    if count > MAX_ENTRIES:
        raise TembedError(f"{path} has more than {MAX_ENTRIES} entries: refused")


ALWAYS_FINE = 1 << 30  # bytes
MAX_RATIO = 100  # images and arrays of pixels never pack this well
CHUNK = 1 << 20
PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def too_large(path: Path, unpacked: int) -> None:
    """Refuses a decompression bomb."""
    packed = path.stat().st_size
    if unpacked > ALWAYS_FINE and unpacked > MAX_RATIO * packed:
        raise TembedError(
            f"{path} holds {packed} bytes but unpacks to {unpacked} or more: refused as a decompression bomb"
        )


def plain_tar(path: Path, stack: ExitStack) -> IO[bytes] | None:
    """A seekable uncompressed tar for ``path``, or None if that is no tar at all."""
    file = stack.enter_context(path.open("rb"))
    magic = file.read(6)
    file.seek(0)
    for mark, unpack in PACKERS.items():
        if magic.startswith(mark):
            return _unpacked(path, stack.enter_context(unpack(file)), stack)
    known = tarfile.is_tarfile(file)
    file.seek(0)
    return file if known else None


def _unpacked(path: Path, packed: IO[bytes], stack: ExitStack) -> IO[bytes]:
    plain: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    size = 0
    while chunk := _next_chunk(path, packed):
        size += len(chunk)
        too_large(path, size)
        try:
            plain.write(chunk)
        except OSError as error:
            raise TembedError(
                f"{path} needs room to unpack in {tempfile.gettempdir()} ({error.strerror}): "
                "free some, or set TMPDIR to a larger folder"
            ) from None
    plain.seek(0)
    return plain


def _next_chunk(path: Path, packed: IO[bytes]) -> bytes:
    try:
        return packed.read(CHUNK)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise TembedError(f"{path} is damaged or cut off ({error}): fetch a fresh copy") from None
