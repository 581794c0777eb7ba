"""What a service is: its folder, where it listens, and how much it takes."""

from dataclasses import dataclass, field
from pathlib import Path

STATE_FOLDER = ".service"
"""Folder of the service's own files below its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for clients."""

    max_body_bytes: int = 1024**2
    max_json_depth: int = 32
    header_timeout_s: float = 10.0
    """From a connection's first moment, or the last answer, to the end of a request's headers."""
    body_timeout_s: float = 20.0
    """For a whole body."""
    send_timeout_s: float = 30.0
    """For a client to take something of what is sent to it."""
    max_streams: int = 64
    """Clients that follow events at once."""
    max_connections: int = 512
    max_pending: int = 1000
    """Jobs that wait; more are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """A service; plain data."""

    root_dir: Path
    """Folder of all run folders."""
    token: str
    """What a client must know."""
    host: str = "127.0.0.1"
    port: int = 8700
    max_running: int = 2
    """Jobs that train at once, where Ray has room for them."""
    ray_address: str = ""
    """Of a cluster's dashboard, `http://HOST:8265`; empty starts Ray on this machine."""
    overrides: tuple[str, ...] = ()
    """Config overrides of every job, before its own."""
    limits: Limits = field(default_factory=Limits)

    @property
    def state_dir(self) -> Path:
        """Folder of the service's own files."""
        return self.root_dir / STATE_FOLDER

    @property
    def database(self) -> Path:
        """File of all jobs."""
        return self.state_dir / "jobs.sqlite3"
