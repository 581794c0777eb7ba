"""Ports that can be had and ports that cannot."""

import socket

from doctor_parts import config

from skyrl_nat.doctor.ports import LOOPBACK, check_free_port, check_named_ports, named_ports


def test_a_free_port_is_opened_and_reached() -> None:
    assert check_free_port().verdict == "ok"


def test_an_address_that_is_not_this_machine_gives_no_port() -> None:
    assert check_free_port("192.0.2.1").verdict == "WRONG"


def test_a_taken_port_is_found_and_a_free_one_is_not() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        check = check_named_ports({"tracking.prometheus_port": (LOOPBACK, port)})
        assert check.verdict == "WRONG"
        assert f"tracking.prometheus_port={port}: " in check.found
    assert check_named_ports({"tracking.prometheus_port": (LOOPBACK, port)}).verdict == "ok"
    assert check_named_ports({}).found == "it names none"


def test_only_ports_that_the_run_opens_count() -> None:
    assert named_ports(config("tracking.prometheus_port=9000", "rollout.gateway_port=9001")) == {}
    chosen = config(
        "tracking.backends=[prometheus]",
        "tracking.prometheus_port=9000",
        "rollout.harness=a:b",
        "rollout.gateway_port=9001",
    )
    assert named_ports(chosen) == {
        "tracking.prometheus_port": (LOOPBACK, 9000),
        "rollout.gateway_port": (LOOPBACK, 9001),
    }
