"""No command looks up a host or opens a connection: nothing is sent anywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.datasets import store_world

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
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, service, hints, found);
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) note("(connection)");
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    return real(socket, address, length);
}
"""
"""Loaded before the C library: writes the name of every host that is looked up, and a line for every connection."""
COMMANDS = """
import shlex, sys
from tembed.cli.main import main
from tembed.lab.analysis import analyzing, maps
maps.EARLY = maps.LATE = analyzing.WORDS = 5  # saves time
for line in sys.argv[1:]:
    if code := main(shlex.split(line)):
        sys.exit(f"{line}: {code}")
"""


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    (folder / "watch.c").write_text(WATCH)
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "watch.c", "-o", "watch.so", "-ldl"], cwd=folder, check=True)
    return folder / "watch.so"


def watched(watch: Path, folder: Path, *line: str) -> list[str]:
    """What a process asked of the network."""
    log = folder / "asked"
    log.touch()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"LD_PRELOAD": str(watch), "WATCH_LOG": str(log), "TEMBED_DATA": str(folder / "data")}
    ended = subprocess.run([sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return log.read_text().splitlines()


@pytest.mark.process
def test_the_watch_sees_a_lookup(watch: Path, tmp_path: Path) -> None:
    code = "import socket; socket.getaddrinfo('localhost', 1); socket.socket().connect_ex(('127.0.0.1', 9))"
    assert watched(watch, tmp_path, "-c", code) == ["localhost", "(connection)"]


@pytest.mark.process
@pytest.mark.slow
def test_no_command_asks_the_network(watch: Path, tmp_path: Path) -> None:
    store_world(tmp_path / "data", "dots", 100, 16)
    lines = [
        "train rn26-embed --data dots --preset fast --epochs 1 --train-images 20 --batch-size 10 --out run --quiet",
        "evaluate run",
        "explore run --images-per-class 2 --no-network --quiet",
        "export run --onnx x.onnx --hub hub --quiet",
        "data show dots",
        "predict run dots.png",
        "explain run dots.png",
        "report run",
        "runs run",
        "models",
    ]
    assert watched(watch, tmp_path, "-c", COMMANDS, *lines) == []
