"""Downloads resume, are verified, and fail with one line; tested against a real server on this machine."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data.download import download

CONTENT = bytes(range(256)) * 4000  # a megabyte
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``CONTENT``; ``drops`` is the number of responses that break off after a quarter of a megabyte."""

    drops = 0
    ranges = True
    status = 200
    content = CONTENT
    asked: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        if start >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        body = server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.drops:
            server.drops -= 1
            body = body[: 1 << 18]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_file_arrives_complete_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Watching(Progress):
        def update(self, what: str, done: float, total: float, **numbers: object) -> None:
            seen.append((done, total))

    target = download(server.url, tmp_path / "sub" / "data.tar.gz", MD5, Watching())
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [file.name for file in target.parent.iterdir()] == ["data.tar.gz"]


def test_a_broken_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.drops = 3
    assert download(server.url, tmp_path / "f", MD5).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=262144-", "bytes=524288-", "bytes=786432-"]


def test_a_later_run_resumes_an_earlier_one(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT[:1000])
    assert download(server.url, tmp_path / "f", MD5).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_partial_file_that_is_already_complete_is_only_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT)
    assert download(server.url, tmp_path / "f", MD5).read_bytes() == CONTENT


def test_a_server_that_cannot_resume_sends_everything_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "f.part").write_bytes(CONTENT[:1000])
    assert download(server.url, tmp_path / "f", MD5).read_bytes() == CONTENT


def test_a_server_that_always_breaks_off_is_abandoned_and_the_received_bytes_are_kept(
    server: Server, tmp_path: Path
) -> None:
    server.drops, server.ranges = 99, False
    with pytest.raises(TembedError, match=r"closed early \(262144 bytes are kept; the next try resumes"):
        download(server.url, tmp_path / "f", MD5)
    assert (tmp_path / "f.part").stat().st_size == 1 << 18


def test_a_wrong_checksum_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(TembedError, match=f"has the checksum .*, expected {MD5}: removed, try again"):
        download(server.url, tmp_path / "f", MD5)
    assert not list(tmp_path.iterdir())


def test_a_refusing_server_gives_a_one_line_error(server: Server, tmp_path: Path) -> None:
    server.status = 403
    with pytest.raises(TembedError, match=r"cannot be fetched: the server answered 403$"):
        download(server.url, tmp_path / "f", MD5)


def test_a_closed_port_gives_a_one_line_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match=r"cannot be fetched: Connection refused$"):
        download("http://127.0.0.1:1/f", tmp_path / "f", MD5)


def test_an_unknown_host_gives_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match=r"http://nowhere\.invalid/f cannot be fetched: [^\n]+$"):
        download("http://nowhere.invalid/f", tmp_path / "f", MD5)


def test_a_server_that_never_answers_is_abandoned(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/f"
        with pytest.raises(TembedError, match="timed out"):
            download(url, tmp_path / "f", MD5, timeout=0.2)
