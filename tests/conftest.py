"""Fixtures for the tests of every folder."""

import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings
from support.chromium import find_browser
from support.fixtures import quick_analysis as quick_analysis
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds

NO_BROWSER = "no browser on the PATH: install chromium (as root on Debian: apt-get install chromium)"


# The same examples each time, and no limit for their time, which a busy machine would exceed.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")

# Under nohup, or in the background of a script, these are ignored, and so they would be in every process of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of the first browser on the PATH. Without one the test is skipped; in CI it fails."""
    path = find_browser()
    if path is not None:
        return path
    if os.environ.get("CI") == "true":
        pytest.fail(NO_BROWSER, pytrace=False)
    pytest.skip(NO_BROWSER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests that lack a browser the same location, so that the summary has one line for all of them."""
    report = yield
    if report.skipped and NO_BROWSER in str(report.longrepr):
        report.longrepr = (__file__, 1, f"Skipped: {NO_BROWSER}")
    return report


STARTS_PROCESSES = ("process", "browser", "cluster")
"""`make check` leaves out the tests with these marks."""
running: list[pytest.Item] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker is left with one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    running.append(item)
    try:
        return (yield)
    finally:
        running.pop()


def check_mark(event: str, arguments: tuple[object, ...]) -> None:
    """Fail an unmarked test that starts another Python process: it would slow down `make check`."""
    if event != "subprocess.Popen" or not running or arguments[0] != sys.executable:
        return
    if not any(running[-1].get_closest_marker(mark) for mark in STARTS_PROCESSES):
        pytest.fail("this test starts a process: mark it with @pytest.mark.process", pytrace=False)


sys.addaudithook(check_mark)
