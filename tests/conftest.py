"""Rules for all tests: in CI nothing may be skipped, since CI installs everything that a test could miss."""

import os
import signal

import hypothesis
import pytest
import torch

# On a busy machine any call may take long; pytest's own limit of time stays.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
# Shells start background jobs with SIGINT ignored and children inherit that; a handler is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"CI must run every test, this one was skipped: {report.longrepr}"


@pytest.fixture(scope="module")
def one_thread():
    """Tensors are tiny: more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
