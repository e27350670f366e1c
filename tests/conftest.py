"""Fixtures for the tests of every folder."""

import os
import shutil
from collections.abc import Generator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""The names that tests/setup.sh looks for."""
NO_BROWSER = "no browser on the PATH: install chromium (as root on Debian: apt-get install chromium)"


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of the first browser on the PATH. Without one the test is skipped; in CI it fails."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is not None:
        return path
    if os.environ.get("CI") == "true":
        pytest.fail(NO_BROWSER, pytrace=False)
    pytest.skip(NO_BROWSER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests without a browser the same place, so that the summary has one line for all of them."""
    report = yield
    if report.skipped and NO_BROWSER in str(report.longrepr):
        report.longrepr = (__file__, 1, f"Skipped: {NO_BROWSER}")
    return report
