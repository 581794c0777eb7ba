"""Jobs in plain processes: limits and a process group, NOT a security boundary.

For machines without namespaces and for debugging. A job can read what the user can read and use the
network; it must be chosen by name (`environment.sandbox.backend=process`).
"""

import tempfile

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.fork_server import (
    INSIDE_FOLDER,
    PRELOAD,
    ForkServerSandbox,
    find_python,
    sandbox_environment,
    server_settings,
)


class ProcessSandbox(ForkServerSandbox):
    """A fork server without namespaces."""

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
        """
        python = find_python(config)
        settings = server_settings(config, mode="none", uid=0, preload=preload)
        command = [str(python), "-I", "-B", str(INSIDE_FOLDER / "server.py"), settings]
        super().__init__(config, lambda: command, sandbox_environment(python, tempfile.gettempdir()))
