#!/usr/bin/env bash
# Provides what the tests need besides Python: tests/setup.sh [compiler] [browser]
#
# A program that is on the PATH is used. If there is none, root installs it with apt-get; nobody else
# is asked for a password. Without a browser the tests run anyway: the `browser` fixture in conftest.py
# says what to install. Without a compiler nearly every test would fail, so the script fails instead.
set -euo pipefail

found() { # whether one of these programs is on the PATH
    local name
    for name in "$@"; do
        if command -v "$name" >/dev/null; then return 0; fi
    done
    return 1
}

install() { # these Debian packages, if this user can install packages
    if ! found apt-get || [ "$(id -u)" != 0 ]; then return 1; fi
    echo "installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

for need in "$@"; do
    case "$need" in
    compiler)
        if [ -z "${CC:-}" ] && ! found cc gcc clang && ! install gcc libc6-dev; then
            echo "the tests need a C compiler: install gcc or clang (on Debian: apt-get install gcc libc6-dev)" >&2
            exit 1
        fi
        ;;
    browser)
        found chromium chromium-browser google-chrome chrome || install chromium fonts-dejavu-core || true
        ;;
    *)
        echo "usage: tests/setup.sh [compiler] [browser]" >&2
        exit 2
        ;;
    esac
done
