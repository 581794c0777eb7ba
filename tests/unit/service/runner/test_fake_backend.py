"""The backend of the other tests keeps to what Ray keeps to (`integration/test_service_in_ray.py`)."""

import pytest
from backend_contract import CASES, Commands
from service_parts import EXIT, WAIT, FakeBackend


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_contract(case):
    case(FakeBackend(), Commands(exits=lambda code: [EXIT, str(code)], waits=[WAIT]))
