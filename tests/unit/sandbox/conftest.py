"""The back ends that hold for this user on this machine; the whole table, for all users, is in `tests/security`."""

import sys

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox
from skyrl_nat.sandbox.landlock import LandlockSandbox
from skyrl_nat.sandbox.profiles import try_out
from skyrl_nat.sandbox.unsafe import UnsafeSandbox

CONFINED = [b for b in (BubblewrapSandbox, LandlockSandbox) if not try_out(b, SandboxConfig(python=sys.executable))]


@pytest.fixture(scope="module", params=[*CONFINED, UnsafeSandbox])
def backend(request):
    """Give each back end in turn."""
    return request.param


@pytest.fixture(scope="module")
def best_backend():
    """Give what `auto` would take, or the one without walls."""
    return [*CONFINED, UnsafeSandbox][0]
