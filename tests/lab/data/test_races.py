"""Imports and downloads of one name at the same time: all succeed, with the same result."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.datasets import entries

from tembed.common.errors import TembedError
from tembed.common.files import is_locked
from tembed.common.progress import Progress
from tembed.lab.data import catalogue
from tembed.lab.data import store as storage
from tembed.lab.data.download import Download, NpmPackage
from tembed.lab.data.getting import get
from tembed.lab.data.importing import import_images
from tembed.lab.data.store import open_stored

WORKERS = 6
WAITING = "another process is fetching cifar10: waiting for it"


@pytest.mark.slow
def test_imports_of_one_name_at_the_same_time_all_succeed(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    pets = make.zip(tmp_path / "pets.zip", make.class_folders({"cat": 4, "dog": 4}))
    mask = os.umask(0o027)
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            found = list(pool.map(lambda _: import_images(pets, "pets").sha256, range(10 * WORKERS)))
    finally:
        seen = os.umask(mask)
    assert len(set(found)) == 1
    assert entries(root) == ["pets"]
    assert seen == 0o027
    assert (root / "pets").stat().st_mode & 0o777 == 0o750


def test_of_two_different_imports_of_one_name_one_succeeds_and_the_other_says_why(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    sources = [make.zip(tmp_path / f"{size}.zip", make.class_folders({"cat": 4, "dog": 4}, size)) for size in (8, 9)]

    def attempt(number: int) -> str:
        try:
            return import_images(sources[number % 2], "pets").sha256
        except TembedError as error:
            return str(error)

    with ThreadPoolExecutor(WORKERS) as pool:
        found = set(pool.map(attempt, range(10 * WORKERS)))
    refused = f"{root / 'pets'} already holds other images: choose another name, or run `tembed data remove pets` first"
    assert found == {refused, open_stored(root, "pets").sha256}


def test_a_dataset_is_put_in_place_while_no_other_process_can_remove_it(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(*arguments: Any) -> None:
        assert is_locked(root / ".locks" / "root")
        real(*arguments)

    real = storage._rename
    monkeypatch.setattr(storage, "_rename", rename)
    import_images(make.zip(tmp_path / "pets.zip", make.class_folders({"cat": 4})), "pets")
    assert open_stored(root, "pets").classes == ("cat",)


class Slow(BaseHTTPRequestHandler):
    """Serves the content of its server in two halves, the second one when all others wait."""

    def do_GET(self) -> None:
        content, asked = self.server.content, self.server.asked  # type: ignore[attr-defined]
        asked.append(self.headers.get("Range"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        assert self.server.all_wait.wait(60)  # type: ignore[attr-defined]
        self.wfile.write(content[len(content) // 2 :])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as running:
        running.asked, running.all_wait = [], threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_downloads_of_one_dataset_at_the_same_time_share_one_download(
    root: Path,
    tmp_path: Path,
    make: SimpleNamespace,
    pin: Callable[[str, Path], str],
    server: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = make.tar(tmp_path / "published.tgz", make.cifar10_files("pickles"), "w:gz").read_bytes()
    sha256 = pin("cifar10", tmp_path / "published.tgz")
    server.content = content  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{server.server_port}/cifar.tgz"
    source = Download(url, hashlib.md5(content).hexdigest())
    monkeypatch.setitem(
        catalogue._RECORDS, "cifar10", replace(catalogue.dataset("cifar10"), sources=(source,), file_names=())
    )
    said: list[str] = []

    class Listening(Progress):
        def say(self, line: str) -> None:
            said.append(line)
            if said.count(WAITING) == WORKERS - 1:
                server.all_wait.set()  # type: ignore[attr-defined]

    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda _: get("cifar10", progress=Listening()).sha256, range(WORKERS)))
    assert found == [sha256] * WORKERS
    assert len(server.asked) == 1  # type: ignore[attr-defined]
    assert said.count(WAITING) == WORKERS - 1
    assert entries(root) == ["cifar10", "downloads"]
    assert not list((root / "downloads").iterdir())


def test_npm_packs_into_a_folder_of_its_own(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packs at the same time write the same file name."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "npm"
    script.write_text("#!/bin/sh\nprintf half > x-1.tgz\n/bin/sleep 0.3\nprintf half >> x-1.tgz\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    package = NpmPackage("x", "1", hashlib.sha256(b"halfhalf").hexdigest())

    def fetch(number: int) -> bytes:
        time.sleep(0.1 * number)
        return package.fetch(tmp_path / "downloads").read_bytes()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(fetch, range(3))) == [b"halfhalf"] * 3
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["x-1.tgz"]
