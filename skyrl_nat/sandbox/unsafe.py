"""Jobs in plain processes: limits and a process group, NOT a security boundary.

For debugging and for machines that confine the whole trainer themselves. A job can read what the user can
read and use the network; it must be chosen by name (`environment.sandbox.backend=unsafe`).
"""

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.launch import PRELOAD, find_python, server_environment, server_program, server_settings
from skyrl_nat.sandbox.server_process import Launch, make_scratch


class UnsafeSandbox(ForkServerSandbox):
    """A fork server without walls."""

    is_confined = False

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
        """
        python = find_python(config)

        def make_launch() -> Launch:
            scratch = make_scratch()
            settings = server_settings(config, mode="none", uid=0, preload=preload, scratch=scratch)
            environment = server_environment(python, home=scratch, scratch=scratch)
            return Launch(server_program(python, settings), environment, scratch)

        super().__init__(config, make_launch)
