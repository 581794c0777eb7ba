"""How far the clocks of a Ray cluster's nodes are from this machine's."""

import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from skyrl_nat.cluster.session import node_name, ray_session
from skyrl_nat.config.cluster import ClusterConfig

NUM_LOOKS = 3
"""Per node; the one with the shortest way counts, since starting a process takes longer than asking one."""


def clock_offsets(config: ClusterConfig) -> dict[str, tuple[float, float]]:
    """Return for every node by how many seconds its clock is ahead, and how uncertain that is (half the way there).

    Raises:
        WorkerError: Ray cannot be reached.
        ray.exceptions.RayError: A node did not answer within `cluster.start_timeout_s`.
    """
    with ray_session(config):
        nodes = {node_name(node): node["NodeID"] for node in ray.nodes() if node["Alive"]}
        return {name: _offset(node_id, config.start_timeout_s) for name, node_id in nodes.items()}


def _now() -> float:
    return time.time()


def _offset(node_id: str, timeout_s: float) -> tuple[float, float]:
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    ask = ray.remote(num_cpus=0)(_now).options(scheduling_strategy=strategy)
    looks: list[tuple[float, float]] = []
    for _ in range(NUM_LOOKS):
        before, started = time.time(), time.monotonic()
        there = float(ray.get(ask.remote(), timeout=timeout_s))
        way_s = time.monotonic() - started
        looks.append((way_s / 2, there - before - way_s / 2))
    uncertain, ahead = min(looks)
    return ahead, uncertain
