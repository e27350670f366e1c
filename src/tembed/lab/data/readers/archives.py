"""A folder, a zip or a tar behind one interface: names and bytes.

Zips and plain tars are read in place. A compressed tar is unpacked once into an unnamed temporary file, because it
allows no random access; that file disappears when it is closed, even if the process is killed.

Files that operating systems leave behind are ignored, and so are hidden files, but a note counts images among them. The
whole archive is refused if a member points outside it (``..``, absolute paths, links), if two members have one name, or
if its content is absurdly larger than the file.
"""

import bz2
import gzip
import lzma
import os
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, Self

from tembed.common.errors import TembedError, one_line
from tembed.images.image_files import ENDINGS, HEIF_ENDINGS
from tembed.images.pictures import MAX_FILE

MAX_ENTRIES = 5_000_000
MAX_RATIO = 100  # of unpacked to packed bytes; images and arrays of pixels never compress this well
ALWAYS_FINE = 1 << 30  # bytes; below this, any ratio is accepted
CHUNK_BYTES = 1 << 20
MAX_DIGITS = 100  # in a row, in an extended header of a tar; a length or a time has less than 30
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
LONG_NUMBER = re.compile(rb"\d{%d}" % (MAX_DIGITS + 1))
JUNK = frozenset({"__macosx", "thumbs.db", "desktop.ini", "$recycle.bin"})
COMPRESSORS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class Archive(Protocol):
    """``path`` is what the user gave. ``names`` are those of the files, sorted, with ``/`` between folders.

    ``folders`` are the folders that it lists, empty ones included. ``notes`` says what was skipped, a line each.
    """

    path: Path
    names: tuple[str, ...]
    folders: tuple[str, ...]
    notes: tuple[str, ...]

    def size(self, name: str) -> int: ...

    def state(self, name: str) -> tuple[int, ...]:
        """Numbers that change if the file changes, as far as can be seen without reading it."""

    def open(self, name: str) -> IO[bytes]: ...


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive at ``path``: a folder, a zip, a tar (plain, gz, bz2 or xz), or a single pickle."""
    with ExitStack() as stack:
        try:
            archive = _open(path, stack)
        except (TembedError, KeyboardInterrupt):
            raise
        except OSError as error:
            raise TembedError(f"{path} cannot be read ({_reason(error)})") from None
        except Exception as error:  # a damaged archive can raise anything
            raise TembedError(f"{path} is a damaged archive ({_reason(error)}): fetch a fresh copy") from None
        yield archive


def where(archive: Archive, name: str) -> str:
    """The name of a member in error messages."""
    return str(archive.path) if archive.path.name == name else f"{archive.path}: {name}"


def open_member(archive: Archive, name: str) -> IO[bytes]:
    """A member as a stream, or a clear error."""
    try:
        return archive.open(name)
    except TembedError:
        raise
    except Exception as error:  # zipfile and tarfile raise many types of error on damaged members
        raise TembedError(f"{where(archive, name)} cannot be read ({_reason(error)})") from None


def read_member(archive: Archive, name: str, most: int = MAX_FILE) -> bytes:
    """The bytes of a member, or a clear error; ``most`` limits their number."""
    try:
        size = archive.size(name)
    except OSError as error:
        raise TembedError(f"{where(archive, name)} cannot be read ({_reason(error)})") from None
    if size > most:
        raise TembedError(f"{where(archive, name)} has {size:,} bytes, more than the {most:,} that are read")
    with open_member(archive, name) as stream:
        try:
            return stream.read()
        except MemoryError:
            raise
        except Exception as error:
            raise TembedError(f"{where(archive, name)} cannot be read ({_reason(error)})") from None


def skipped_images(names: Iterable[str], one: str, many: str) -> list[str]:
    """A line that counts the images among these files and says why they are skipped; none without images."""
    found = [name for name in names if PurePosixPath(name).suffix.lower() in ENDINGS | HEIF_ENDINGS]
    if len(found) > 1:
        return [f"skipped {len(found):,} images {many}, such as {min(found)}"]
    return [f"skipped 1 image {one}: {name}" for name in found]


def _open(path: Path, stack: ExitStack) -> Archive:
    if path.is_dir():
        return _Folder(path)
    if not path.exists():
        raise TembedError(f"{path} does not exist")
    if not path.is_file():
        raise TembedError(f"{path} is neither a file nor a folder: give one of them")
    if path.suffix.lower() in (".pkl", ".pickle"):
        return _SingleFile(path)
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"PK":
        return _Zip(path, stack.enter_context(zipfile.ZipFile(path)))
    plain = _plain_tar(path, stack)
    try:
        tar = stack.enter_context(tarfile.open(fileobj=plain, mode="r:", tarinfo=_TarMember))  # noqa: SIM115
    except tarfile.ReadError:
        raise TembedError(f"{path} is neither a folder nor a zip or tar archive (or it is damaged)") from None
    return Tar(path, tar, plain)


class _Folder:
    """Follows links, because the folder is the user's own, but visits each folder once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, str] = {}
        seen: dict[str, str] = {}
        notes: list[str] = []
        hidden: list[str] = []
        shown_folders: set[str] = set()
        for folder, folders, files in os.walk(path, followlinks=True, onerror=_raise):
            real, start = os.path.realpath(folder), os.path.relpath(folder, path).replace(os.sep, "/")
            shown = _printable(start)
            if real in seen:
                folders.clear()
                notes.append(f"{shown} is a link to a folder that is also read as {seen[real]}: skipped")
                continue
            if shown in shown_folders:
                raise TembedError(f"two folders in {path} are both shown as {shown!r}: rename one")
            seen[real] = shown
            shown_folders.add(shown)
            hidden += (
                name for one in folders if _hidden(one) for name in _files_below(path, os.path.join(folder, one))
            )
            folders[:] = sorted(one for one in folders if not _hidden(one))
            for file in files:
                name = file if start == "." else f"{start}/{file}"
                if _hidden(name):
                    hidden.append(_printable(name))
                    continue
                if _printable(name) in self._files:
                    raise TembedError(f"two files in {path} are both shown as {_printable(name)!r}: rename one")
                self._files[_printable(name)] = os.path.join(folder, file)
        self.names = tuple(sorted(self._files))
        self.folders = tuple(sorted(shown_folders - {"."}))
        self.notes = (*notes, *_hidden_images(hidden))

    def size(self, name: str) -> int:
        return os.path.getsize(self._files[name])

    def state(self, name: str) -> tuple[int, ...]:
        return file_numbers(self._files[name])

    def open(self, name: str) -> IO[bytes]:
        if not stat.S_ISREG(os.stat(self._files[name]).st_mode):
            raise TembedError(f"{self._files[name]} is not a regular file: remove it")
        return open(self._files[name], "rb")


class _SingleFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: tuple[str, ...] = (path.name,)
        self.folders: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def size(self, name: str) -> int:
        return self.path.stat().st_size

    def state(self, name: str) -> tuple[int, ...]:
        return file_numbers(self.path)

    def open(self, name: str) -> IO[bytes]:
        return self.path.open("rb")


class _Zip:
    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self.path, self._file = path, file
        self._members: dict[str, zipfile.ZipInfo] = {}
        folders: set[str] = set()
        hidden: list[str] = []
        _check_entries(path, len(file.filelist))
        for member in file.infolist():
            name = _safe(path, _zip_name(member))
            if stat.S_ISLNK(member.external_attr >> 16):
                raise TembedError(f"{path} has the member {name!r}, which is a link: refused")
            if member.is_dir():
                folders.add(name)
            elif _hidden(name):
                hidden.append(name)
            elif name:
                _check_new(path, name, self._members)
                self._members[name] = member
        _check_unpacked_size(path, sum(member.file_size for member in file.infolist()))
        self.names = tuple(sorted(self._members))
        self.folders = tuple(sorted(folder for folder in folders if folder and not _hidden(folder)))
        self.notes = tuple(_hidden_images(hidden))

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def state(self, name: str) -> tuple[int, ...]:
        return self._members[name].file_size, self._members[name].CRC

    def open(self, name: str) -> IO[bytes]:
        return self._file.open(self._members[name])


class _TarMember(tarfile.TarInfo):
    """A member whose extended header is looked at before tarfile searches it, in quadratic time if it is of digits."""

    @classmethod
    def fromtarfile(cls, file: tarfile.TarFile) -> Self:
        stream: Any = file.fileobj
        start = stream.tell()
        block = stream.read(tarfile.BLOCKSIZE)
        if block[156:157] in EXTENDED:
            with suppress(tarfile.TarError):
                header = tarfile.TarInfo.frombuf(block, file.encoding or "utf-8", file.errors)
                if LONG_NUMBER.search(stream.read(header.size)):
                    raise ValueError(f"an extended header has a number of more than {MAX_DIGITS} digits")
        stream.seek(start)
        return super().fromtarfile(file)


class Tar:
    """``stream`` is the uncompressed tar that ``file`` reads. ``places``: offset and size of each file in it."""

    def __init__(self, path: Path, file: tarfile.TarFile, stream: IO[bytes]) -> None:
        self.path, self._file = path, file
        self.places: dict[str, tuple[int, int]] = {}
        folders: set[str] = set()
        hidden: list[str] = []
        total = count = 0
        while (member := file.next()) is not None:
            vars(file)["members"].clear()  # of a million files, they would take a gigabyte
            count += 1
            _check_entries(path, count)
            name = _safe(path, member.name)
            if member.islnk() or member.issym():
                raise TembedError(f"{path} has the member {name!r}, which is a link: refused")
            if not (member.isfile() or member.isdir()) or member.issparse():
                raise TembedError(f"{path} has the member {name!r}, which is not a plain file: refused")
            total += member.size
            if member.isdir():
                folders.add(name)
            elif _hidden(name):
                hidden.append(name)
            elif name:
                _check_new(path, name, self.places)
                self.places[name] = member.offset_data, member.size
        _check_unpacked_size(path, total)
        _check_end(path, stream, file.offset)
        self.names = tuple(sorted(self.places))
        self.folders = tuple(sorted(folder for folder in folders if folder and not _hidden(folder)))
        self.notes = tuple(_hidden_images(hidden))

    def size(self, name: str) -> int:
        return self.places[name][1]

    def state(self, name: str) -> tuple[int, ...]:
        return *file_numbers(self.path), *self.places[name]

    def open(self, name: str) -> IO[bytes]:
        member = tarfile.TarInfo(name)
        member.offset_data, member.size = self.places[name]
        stream = self._file.extractfile(member)
        assert stream is not None, "only regular files are listed"
        return stream


def _check_end(path: Path, stream: IO[bytes], end: int) -> None:
    """Raise `TembedError` unless a tar ends at ``end`` with a block of zeros and nothing but zeros after it.

    tarfile takes any header that it cannot read for the end.
    """
    stream.seek(end)
    if stream.read(512) != bytes(512):
        raise TembedError(f"{path} is cut off (no end mark): fetch a fresh copy")
    while block := stream.read(CHUNK_BYTES):
        if block.strip(b"\0"):
            raise TembedError(
                f"{path} has something after its end mark, at byte {end:,}: it is damaged, or several archives in "
                "one; unpack it and import the folder, or fetch a fresh copy"
            )


def _plain_tar(path: Path, stack: ExitStack) -> IO[bytes]:
    """The seekable uncompressed content of ``path``."""
    file = stack.enter_context(path.open("rb"))
    magic = file.read(6)
    file.seek(0)
    for mark, decompress in COMPRESSORS.items():
        if magic.startswith(mark):
            return _unpacked(path, stack.enter_context(decompress(file)), stack)
    return file


def _unpacked(path: Path, packed: IO[bytes], stack: ExitStack) -> IO[bytes]:
    plain: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    size = 0
    while chunk := _next_chunk(path, packed):
        size += len(chunk)
        _check_unpacked_size(path, size)
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
        return packed.read(CHUNK_BYTES)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise TembedError(f"{path} is damaged or cut off ({error}): fetch a fresh copy") from None


def _check_new(path: Path, name: str, members: Container[str]) -> None:
    if name in members:
        raise TembedError(f"{path} has two members named {name!r}: refused; pack it again")


def _check_entries(path: Path, count: int) -> None:
    if count > MAX_ENTRIES:
        raise TembedError(f"{path} has more than {MAX_ENTRIES} entries: refused")


def _check_unpacked_size(path: Path, unpacked: int) -> None:
    packed = path.stat().st_size
    if unpacked > ALWAYS_FINE and unpacked > MAX_RATIO * packed:
        raise TembedError(
            f"{path} has {packed} bytes but unpacks to {unpacked} or more: refused as a decompression bomb"
        )


def _safe(path: Path, name: str) -> str:
    """The member's name without ``./``. An archive with a name that points outside it is refused."""
    plain = _printable(name.replace("\\", "/"))
    folders = [folder for folder in plain.split("/") if folder not in ("", ".")]
    if ".." in folders or plain.startswith("/") or plain[1:3] == ":/":
        raise TembedError(f"{path} has the member {plain!r}, which points outside the archive: refused")
    return "/".join(folders)


def _zip_name(member: zipfile.ZipInfo) -> str:
    """Undo zipfile's decoding as code page 437 of UTF-8 names, which some packers write without the UTF-8 flag."""
    if member.flag_bits & 0x800:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename


def _printable(name: str) -> str:
    """A printable, unambiguous form of names that are not UTF-8 or contain control characters."""
    return one_line(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def _hidden(name: str) -> bool:
    return any(folder.startswith(".") or folder.lower() in JUNK for folder in name.split("/"))


def _hidden_images(names: Iterable[str]) -> list[str]:
    """A line about hidden images. What macOS and Windows leave behind is none, even if its name says so."""
    own = (name for name in names if not any(_is_leftover(folder) for folder in name.split("/")))
    return skipped_images(own, "whose name or folder is hidden", "whose names or folders are hidden")


def _is_leftover(folder: str) -> bool:
    return folder.startswith("._") or folder.lower() in JUNK


def _files_below(path: Path, folder: str) -> Iterator[str]:
    """The names of all files in a hidden folder, relative to ``path``, as far as it can be read."""
    for inner, _, files in os.walk(folder):
        for file in files:
            yield _printable(os.path.relpath(os.path.join(inner, file), path).replace(os.sep, "/"))


def file_numbers(path: str | Path) -> tuple[int, ...]:
    """The size of a file and when it was changed."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _raise(error: OSError) -> None:
    raise TembedError(f"{error.filename} cannot be read ({_reason(error)})")


def _reason(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return one_line(said or str(error) or type(error).__name__)
