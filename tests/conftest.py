"""Rules for every test: with CI set, a skipped test is a failed one."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# On a loaded machine a slow example says nothing about the code.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure in CI: {report.longrepr}"
    return report
