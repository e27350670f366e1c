"""Archives are read without unpacking them into folders; errors name damaged or dangerous ones."""

import gzip
import io
import os
import stat
import tarfile
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.datasets import entries

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images
from tembed.lab.data.readers import archives

OUTSIDE = ["../evil.png", "a/../../evil.png", "/etc/evil.png", "..\\evil.png", "C:\\evil.png"]


@pytest.fixture
def good(make: SimpleNamespace) -> dict[str, bytes]:
    return make.class_folders({"cat": 4, "dog": 4})


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_with_a_member_that_points_outside_is_refused(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], kind: str, name: str
) -> None:
    path = tmp_path / f"pets.{kind}"
    getattr(make, kind)(path, good | {name: b"x"})
    with pytest.raises(TembedError, match=rf"pets\.{kind} has the member .*evil\.png.*points outside"):
        import_images(path, "pets")
    assert not root.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_tar_with_a_link_is_refused(root: Path, tmp_path: Path, good: dict[str, bytes], kind: bytes) -> None:
    with tarfile.open(tmp_path / "pets.tar", "w") as archive:
        member = tarfile.TarInfo("cat/link.png")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(TembedError, match=r"pets\.tar has the member 'cat/link\.png', which is a link"):
        import_images(tmp_path / "pets.tar", "pets")


def test_a_tar_with_a_device_is_refused(root: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "pets.tar", "w") as archive:
        member = tarfile.TarInfo("cat/device.png")
        member.type = tarfile.CHRTYPE
        archive.addfile(member)
    with pytest.raises(TembedError, match="which is not a plain file"):
        import_images(tmp_path / "pets.tar", "pets")


def test_a_zip_with_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    member = zipfile.ZipInfo("cat/link.png")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(TembedError, match=r"'cat/link.png', which is a link"):
        import_images(tmp_path / "pets.zip", "pets")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz", "tar.bz2"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.97])
def test_a_truncated_archive_is_refused_and_stored_data_stays(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], kind: str, keep: float
) -> None:
    path = tmp_path / f"pets.{kind}"
    whole = make.zip(path, good) if kind == "zip" else make.tar(path, good, f"w:{kind[4:]}")
    before = import_images(whole, "pets").sha256
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))  # a tar is padded at its end
    path.write_bytes(data[: int(end * keep)])
    with pytest.raises(TembedError, match=rf"pets\.{kind}"):
        import_images(path, "pets")
    assert import_images(make.zip(tmp_path / "again.zip", good), "pets").sha256 == before
    assert entries(root) == ["pets"]


def test_a_tar_cut_between_two_members_is_noticed(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    path = make.tar(tmp_path / "pets.tar", good)
    with tarfile.open(path) as archive:
        cut = archive.getmembers()[5].offset
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TembedError, match="cut off"):
        import_images(path, "pets")


@pytest.mark.parametrize("damage", ["a zeroed header", "a second archive", "other bytes"])
@pytest.mark.parametrize("kind", ["tar", "tgz"])
def test_a_tar_that_goes_on_after_its_end_mark_is_refused(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], kind: str, damage: str
) -> None:
    """A reader stops at the first block of zeros, so that images behind it would be missing without a word."""
    data = make.tar(tmp_path / "whole.tar", good).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as archive:
        header = archive.getmembers()[5].offset
    damaged = {
        "a zeroed header": data[:header] + bytes(512) + data[header + 512 :],
        "a second archive": data + data,
        "other bytes": data + bytes(100_000) + b"x",
    }[damage]
    path = tmp_path / f"pets.{kind}"
    path.write_bytes(damaged if kind == "tar" else gzip.compress(damaged))
    with pytest.raises(TembedError, match=r"has something after its end mark, at byte [\d,]+: .* fetch a fresh copy"):
        import_images(path, "pets")
    assert not root.exists()


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_digits_in_an_extended_header_do_not_take_forever(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], place: str, kind: bytes
) -> None:
    """tarfile's search takes quadratic time on them: 14 s for these 80 kB."""
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 80_000
    member = header.tobuf() + b"1" * 80_000 + bytes(-80_000 % 512)
    data = make.tar(tmp_path / "pets.tar", good).read_bytes()
    with tarfile.open(tmp_path / "pets.tar") as archive:
        at = archive.getmembers()[0 if place == "first" else 3].offset
    (tmp_path / "pets.tar").write_bytes(data[:at] + member + data[at:])
    start = time.process_time()
    with pytest.raises(TembedError, match=r"pets\.tar is a damaged .* \(an extended header has a number of more"):
        import_images(tmp_path / "pets.tar", "pets")
    assert time.process_time() - start < 5


def test_extended_headers_of_usual_tars_are_read(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    long = {f"{'d' * 150}/{name}": data for name, data in good.items()}
    with tarfile.open(tmp_path / "pets.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in long.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(data), {"mtime": "1700000000.123456789", "comment": "a" * 70_000}
            archive.addfile(member, io.BytesIO(data))
    assert len(import_images(tmp_path / "pets.tar", "pets").labels) == 8


@pytest.mark.parametrize("name", ["pets.tar", "pets.pkl"])
def test_a_pipe_is_no_archive(root: Path, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(TembedError, match=f"{name} is neither a file nor a folder"):
        import_images(tmp_path / name, "pets")


def test_padding_after_the_end_mark_of_a_tar_is_accepted(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    path = make.tar(tmp_path / "pets.tar", good)
    path.write_bytes(path.read_bytes() + bytes(3_000_000))
    assert len(import_images(path, "pets").labels) == 8


def test_a_flipped_bit_in_a_zip_is_noticed_and_its_member_named(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    path = make.zip(tmp_path / "pets.zip", good)
    data = bytearray(path.read_bytes())
    data[data.index(good["dog/002.png"]) + 60] ^= 4
    path.write_bytes(data)
    with pytest.raises(TembedError, match=r"pets\.zip: dog/002\.png.*CRC"):
        import_images(path, "pets")


def test_a_flipped_bit_in_a_compressed_tar_is_noticed(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    path = make.tar(tmp_path / "pets.tgz", good, "w:gz")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(TembedError, match=r"pets\.tgz is .*fetch a fresh copy"):
        import_images(path, "pets")


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_decompression_bomb_is_refused_before_it_is_unpacked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(archives, "ALWAYS_FINE", 1 << 20)
    path, zeros = tmp_path / f"bomb.{kind}", bytes(20 << 20)
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/0.png", zeros)
    else:
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo("a/0.png")
            member.size = len(zeros)
            tar.addfile(member, io.BytesIO(zeros))
    with pytest.raises(TembedError, match="refused as a decompression bomb"):
        import_images(path, "bomb")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_too_many_entries_are_refused(
    root: Path,
    tmp_path: Path,
    make: SimpleNamespace,
    good: dict[str, bytes],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 5)
    with pytest.raises(TembedError, match="more than 5 entries"):
        import_images(getattr(make, kind)(tmp_path / "pets", good), "pets")


def test_an_encrypted_zip_is_refused(root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]) -> None:
    path = make.zip(tmp_path / "pets.zip", good)
    data = bytearray(path.read_bytes())
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        data[at + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(TembedError, match="encrypted"):
        import_images(path, "pets")


def test_utf8_names_that_a_zip_does_not_declare_are_read(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    path = make.zip(tmp_path / "pets.zip", {"QQ/1.png": make.png(make.random_images(1)[0])})
    path.write_bytes(path.read_bytes().replace(b"QQ", "é".encode()))
    assert import_images(path, "pets").classes == ("é",)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_line_breaks_in_names_do_not_break_the_error_line(
    root: Path, tmp_path: Path, make: SimpleNamespace, kind: str
) -> None:
    path = getattr(make, kind)(tmp_path / f"pets.{kind}", {"a\nb/\x1b[31m1.png": b"broken"})
    with pytest.raises(TembedError) as caught:
        import_images(path, "pets")
    assert r"a\nb/\x1b[31m1.png" in str(caught.value)
    assert str(caught.value).isprintable()


def test_nothing_is_left_in_the_temporary_folder(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    import_images(make.tar(tmp_path / "pets.tgz", good, "w:gz"), "pets")
    assert not list(scratch.iterdir())


def test_a_file_of_another_kind_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TembedError, match=r"notes\.txt is neither a folder nor a zip or tar archive"):
        import_images(tmp_path / "notes.txt", "x")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("again", ["cat/000.png", "./cat/000.png", "cat\\000.png"])
def test_an_archive_with_two_members_of_one_name_is_refused(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes], kind: str, again: str
) -> None:
    path = getattr(make, kind)(tmp_path / f"pets.{kind}", good)
    if kind == "zip":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(again, good["cat/001.png"])
    else:
        with tarfile.open(path, "a") as tar:
            member = tarfile.TarInfo(again)
            member.size = len(good["cat/001.png"])
            tar.addfile(member, io.BytesIO(good["cat/001.png"]))
    with pytest.raises(TembedError, match=rf"pets\.{kind} has two members named 'cat/000.png': refused"):
        import_images(path, "pets")


def test_two_files_whose_names_look_the_same_when_escaped_are_refused(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    """In an archive a backslash separates folders, so there this cannot happen."""
    twins = {"cat/a\nb.png": good["cat/000.png"], "cat/a\\nb.png": good["cat/001.png"]}
    with pytest.raises(TembedError, match=r"two files in .*pets are both shown as 'cat/a\\\\nb.png': rename one"):
        import_images(make.folder(tmp_path / "pets", good | twins), "pets")


def test_two_folders_whose_names_look_the_same_when_escaped_are_refused(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    """They would be one class."""
    twins = {"ow\nl/1.png": good["cat/000.png"], "ow\\nl/2.png": good["cat/001.png"]}
    with pytest.raises(TembedError, match=r"two folders in .*pets are both shown as 'ow\\\\nl': rename one"):
        import_images(make.folder(tmp_path / "pets", good | twins), "pets")


def test_a_link_to_a_folder_that_was_already_read_is_reported(
    root: Path, tmp_path: Path, make: SimpleNamespace, good: dict[str, bytes]
) -> None:
    path = make.folder(tmp_path / "pets", good)
    (path / "puppy").symlink_to(path / "dog")
    stored = import_images(path, "pets")
    assert stored.classes == ("cat", "dog")
    assert stored.manifest["notes"] == ["puppy is a link to a folder that is also read as dog: skipped"]
