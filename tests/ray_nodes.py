"""Ray nodes of this machine as if they were several: each a raylet, in a network of its own where that can be had."""

import contextlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import small_run

NETWORKS = "10.213"
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
"""Ray notices a lost node within seconds."""


class RayNodes:
    """Starts and cuts nodes; the head offers no cores, so that workers sit on the others."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.name = uuid.uuid4().hex[:6]
        # One of a test that was killed may still be there.
        self._network = f"{NETWORKS}.{int(self.name[:2], 16)}"
        self.has_networks = _make_bridge(self.name, self._network)
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self.address = ""
        self._environment = environment

    def start(self, name: str, num_cpus: int) -> None:
        """Start a node and wait until it has joined; the first one is the head."""
        environment = {
            **{key: value for key, value in small_run.environment().items() if not key.startswith("SLURM")},
            **QUICK,
            **self._environment,
            "SLURM_JOB_ID": self.name,
            "SLURMD_NODENAME": name,
            "SLURM_MEM_PER_NODE": "3000",
            "SLURM_CPUS_ON_NODE": str(num_cpus),
        }
        inside = self._enter(name) if self.has_networks and self.address else []
        command = [*inside, sys.executable, "-m", "skyrl_nat.cluster.node_starter", *filter(None, [self.address])]
        node = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._nodes[name] = node
        assert node.stdout is not None
        found = node.stdout.readline().strip()
        assert found, f"node {name} must come up"
        self.address = self.address or found

    def cut(self, name: str) -> None:
        """Take a node away: its cable where it has one, else its life."""
        if self.has_networks:
            _ip("link", "set", self._cable(name), "down")
        else:
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once, as a power cut does."""
        starter = psutil.Process(self._nodes[name].pid)
        for process in [*starter.children(recursive=True), starter]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End all nodes; the head last. Once is enough."""
        for name in reversed(self._nodes):
            node = self._nodes[name]
            assert node.stdin is not None
            if self._is_cut(name):
                # It would look for the head for a minute.
                self.kill(name)
            node.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(60)
            if node.poll() is None:
                self.kill(name)
        if self.has_networks:
            for name in list(self._nodes)[1:]:
                _ip("netns", "del", f"{self.name}-{name}")
            _ip("link", "del", f"br{self.name}")
        self._nodes, self.has_networks = {}, False

    def _is_cut(self, name: str) -> bool:
        state = Path(f"/sys/class/net/{self._cable(name)}/operstate")
        return state.exists() and state.read_text().strip() == "down"

    def _cable(self, name: str) -> str:
        return f"v{self.name}{name}"

    def _enter(self, name: str) -> list[str]:
        """Make a network for a node, with one cable to the bridge, and return what runs a command there."""
        space, cable, number = f"{self.name}-{name}", self._cable(name), len(self._nodes) + 1
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", f"br{self.name}", "up")
        _ip("-n", space, "addr", "add", f"{self._network}.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")
        _ip("-n", space, "route", "add", "default", "via", f"{self._network}.1")
        return ["ip", "netns", "exec", space]


@contextlib.contextmanager
def ray_nodes(environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[RayNodes]:
    """Hold a cluster of which nothing is started yet; its processes get more variables."""
    nodes = RayNodes(environment)
    try:
        yield nodes
    finally:
        nodes.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _make_bridge(name: str, network: str) -> bool:
    """Return whether networks can be made here, and make their bridge."""
    try:
        _ip("link", "add", f"br{name}", "type", "bridge")
        _ip("addr", "add", f"{network}.1/24", "dev", f"br{name}")
        _ip("link", "set", f"br{name}", "up")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
