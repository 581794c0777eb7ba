"""Jobs behind Landlock and seccomp: neither root nor namespaces needed, only a new kernel.

The server is a plain process that never runs a job's code. Each job may read the interpreter and write its
own folder; it has no sockets and no `/proc`, and its signals end at itself. Started by root it also has a uid of its
own, so the interpreter must lie where every user can read.
"""

import os

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.launch import (
    INSIDE_FOLDER,
    PRELOAD,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    draw_uid,
    find_python,
    interpreter_folders,
    server_environment,
    server_program,
    server_settings,
)
from skyrl_nat.sandbox.server_process import Launch, make_scratch


class LandlockSandbox(ForkServerSandbox):
    """A fork server whose jobs confine themselves."""

    advice = (
        "Use a kernel >= 6.12 with Landlock among its LSMs; as root keep the interpreter where every user can read it "
        "(not below /root), or run as an ordinary user"
    )

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
        """
        python = find_python(config)
        readable = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *interpreter_folders(python), str(INSIDE_FOLDER)]

        def make_launch() -> Launch:
            uid = draw_uid() if os.geteuid() == 0 else 0
            scratch = make_scratch()
            settings = server_settings(
                config, mode="landlock", uid=uid, preload=preload, scratch=scratch, readable_folders=readable
            )
            environment = server_environment(python, home=scratch, scratch=scratch)
            return Launch(server_program(python, settings), environment, scratch)

        super().__init__(config, make_launch)
