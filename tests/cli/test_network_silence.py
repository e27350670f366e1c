"""No command but `data get` looks up a host or opens a connection: nothing is sent anywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest
from support.datasets import store_world
from support.grids import ONE
from support.layouts import class_folders, write_folder
from support.quick import PROGRAM as QUICK_PROGRAM

from tembed.cli import cmd_data
from tembed.cli.main import COMMANDS
from tembed.lab.data.catalogue import CIFAR10
from tembed.lab.data.download import Download

WATCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void note(const char *what) {
    int file = open(getenv("WATCH_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, what, strlen(what)) < 0 || write(file, "\n", 1) < 0) abort();
    close(file);
}

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    note(host ? host : "(no host)");
    if (getenv("WATCH_REFUSE")) return EAI_NONAME;
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, service, hints, found);
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) note("(connection)");
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    return real(socket, address, length);
}
"""
"""Loaded before the C library: writes the name of every host that is looked up, and a line for every connection.

With ``WATCH_REFUSE`` in the environment no host is found.
"""
LINE_BY_LINE = """
import shlex
from tembed.cli.main import main
from tembed.lab import demo
demo.Demo.__init__.__defaults__ = (1, 40, 0, 2, "dots")
demo.write_analysis = lambda *_, **__: None  # takes long; analyze does it for a network without the block
for line in sys.argv[1:]:
    expected = 2 if line.startswith("data get") else 0
    if (code := main(shlex.split(line))) != expected:
        sys.exit(f"{line}: {code}")
"""
"""Runs command lines. ``data get`` has to fail."""
LINES = (
    "doctor",
    "models",
    "layers tembed:rn20",
    "data import pictures --name pets",
    "data rename pets animals",
    "data check animals",
    "data remove animals",
    "data list",
    "data show dots",
    "data get cifar10 --from missing",
    "train rn26-embed --data dots --preset fast --epochs 1 --train-images 20 --batch-size 10 --out run --quiet",
    "evaluate run",
    "explore run --images-per-class 2 --no-network --quiet",
    "export run --onnx x.onnx --hub hub --quiet",
    "predict run dots.png",
    "explain run dots.png",
    "judge run --images-per-class 2 --quiet",
    "report run",
    "runs run",
    "cache",
    "grid one.toml --threads 1 --quiet",
    "demo --epochs 1 --train-images 40 --quiet",
    "analyze runs/demo/rn26 --images-per-class 2 --quiet",
)
"""Every command, in an order in which each finds its input."""


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    (folder / "watch.c").write_text(WATCH)
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "watch.c", "-o", "watch.so", "-ldl"], cwd=folder, check=True)
    return folder / "watch.so"


def watched(watch: Path, folder: Path, *line: str, code: int = 0, **more: str) -> list[str]:
    """What a process asked of the network."""
    log = folder / "asked"
    log.touch()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"LD_PRELOAD": str(watch), "WATCH_LOG": str(log), "TEMBED_DATA": str(folder / "data"), **more}
    environment["TEMBED_CACHE"] = str(folder / "cache")
    ended = subprocess.run([sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    return log.read_text().splitlines()


@pytest.mark.process
def test_the_watch_sees_a_lookup(watch: Path, tmp_path: Path) -> None:
    code = "import socket; socket.getaddrinfo('localhost', 1); socket.socket().connect_ex(('127.0.0.1', 9))"
    assert watched(watch, tmp_path, "-c", code) == ["localhost", "(connection)"]


def test_every_command_is_watched() -> None:
    assert {line.split()[0] for line in LINES} == set(COMMANDS)
    datas = {line.split()[1] for line in LINES if line.startswith("data ")}
    assert datas == {kind.__name__.lower() for kind in get_args(cmd_data.Command)}


@pytest.mark.process
@pytest.mark.slow
def test_no_command_asks_the_network(watch: Path, tmp_path: Path) -> None:
    store_world(tmp_path / "data", "dots", 100, 16)
    write_folder(tmp_path / "pictures", class_folders({"cat": 4, "dog": 4}))
    (tmp_path / "one.toml").write_text(ONE)
    assert watched(watch, tmp_path, "-c", QUICK_PROGRAM + LINE_BY_LINE, *LINES) == []


@pytest.mark.process
def test_only_the_host_of_a_dataset_is_asked_for_it(watch: Path, tmp_path: Path) -> None:
    """Without npm on the path, whose own process would ask the registry."""
    line = ("-m", "tembed", "data", "get", "cifar10")
    asked = watched(watch, tmp_path, *line, code=2, WATCH_REFUSE="1", PATH=str(tmp_path))
    hosts = {urlsplit(each.url).hostname for each in CIFAR10.sources if isinstance(each, Download)}
    assert asked
    assert set(asked) == hosts
