"""One root with two runs for all tests of the routes; who changes files copies it."""

from pathlib import Path

import pytest
from shown_runs import write_run


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboard")
    write_run(folder / "runs", "jira-a")
    write_run(folder / "runs", "jira-b", steps=3, slope=0.2, records_tokens=False)
    return folder / "runs"
