"""Which back end confines the jobs of this machine: shown by trying, never assumed."""

import functools
import logging

from skyrl_nat.config.environment import SandboxBackend, SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import Sandbox
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox
from skyrl_nat.sandbox.container import ContainerSandbox
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.landlock import LandlockSandbox
from skyrl_nat.sandbox.launch import BARE_PRELOAD, PRELOAD
from skyrl_nat.sandbox.unsafe import UnsafeSandbox

BACKENDS = {
    SandboxBackend.bubblewrap: BubblewrapSandbox,
    SandboxBackend.landlock: LandlockSandbox,
    SandboxBackend.container: ContainerSandbox,
    SandboxBackend.unsafe: UnsafeSandbox,
}
AUTOMATIC = (SandboxBackend.bubblewrap, SandboxBackend.landlock, SandboxBackend.container)
"""What `auto` tries, in this order."""
_logger = logging.getLogger(__name__)


def open_sandbox(config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> Sandbox:
    """Return the sandbox that `environment.sandbox` asks for; its servers start with the first job.

    Args:
        config: Section `environment.sandbox`.
        preload: Modules that each server imports once.

    Raises:
        ConfigError: The sandbox's interpreter does not exist.
        SandboxError: The backend cannot work here; with `auto`, none can.
    """
    backend = config.backend
    if backend is SandboxBackend.auto:
        backend = choose(config.python, config.container_image)
    return BACKENDS[backend](config, preload=preload)


@functools.cache
def choose(python: str, container_image: str) -> SandboxBackend:
    """Return the first profile whose jobs prove to be confined on this machine.

    Raises:
        ConfigError: The sandbox's interpreter does not exist.
        SandboxError: None does.
    """
    reasons: list[str] = []
    config = SandboxConfig(python=python, container_image=container_image)
    for backend in AUTOMATIC:
        reason = try_out(BACKENDS[backend], config)
        if not reason:
            _logger.info("sandbox: %s holds%s", backend, "".join(f"; {earlier}" for earlier in reasons))
            return backend
        reasons.append(f"{backend} does not: {reason}")
    raise SandboxError(
        "code that the policy writes must be confined, but no profile of environment.sandbox.backend holds here: "
        f"{' | '.join(reasons)} | Where the whole trainer is confined, environment.sandbox.backend=unsafe runs jobs "
        "without walls"
    )


def try_out(backend: type[ForkServerSandbox], config: SandboxConfig) -> str:
    """Start a server of a back end, let a job try to break out, and return what is wrong with it."""
    try:
        sandbox = backend(config, preload=BARE_PRELOAD)  # type: ignore[call-arg]  # back ends make their own launch
        try:
            sandbox.start()
        finally:
            sandbox.close()
    except SandboxError as error:
        return str(error)
    return ""
