"""What the tests of the policy worker share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

from skyrl_nat.workers import process_group


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def leave_group() -> Iterator[None]:
    yield
    process_group.destroy_group()
