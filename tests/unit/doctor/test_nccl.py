"""NCCL's library and the variables that hurt it."""

import pytest
from doctor_parts import config, gpu_config

from skyrl_nat.doctor.nccl import check_nccl, hurting


def test_only_a_config_with_gpus_is_looked_at() -> None:
    checks = check_nccl(config(), {"NCCL_P2P_DISABLE": "1"})
    assert [check.verdict for check in checks] == ["skipped", "skipped"]


def test_a_library_that_is_not_there_is_wrong() -> None:
    assert check_nccl(gpu_config(), {}, lambda: "")[0].verdict == "WRONG"
    assert [check.verdict for check in check_nccl(gpu_config(), {}, lambda: "libnccl.so.2")] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_P2P_DISABLE", "1"), ("CUDA_VISIBLE_DEVICES", ""), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")],
)
def test_variables_that_hurt_are_named(name: str, value: str) -> None:
    check = check_nccl(gpu_config(), {name: value}, lambda: "libnccl.so.2")[1]
    assert check.verdict == "WRONG"
    assert check.found.startswith(f"{name}={value!r}: ")


def test_usual_values_hurt_nobody() -> None:
    assert hurting({"NCCL_DEBUG": "WARN", "NCCL_P2P_DISABLE": "0", "CUDA_VISIBLE_DEVICES": "0,1"}, ["eth0"]) == []


@pytest.mark.parametrize(
    ("wanted", "is_fault"),
    [("eth", False), ("=eth0", False), ("=eth", True), ("ib0", True), ("^lo", False), ("ib0,eth0", False)],
)
def test_an_interface_that_is_not_there_is_named(wanted: str, is_fault: bool) -> None:
    found = hurting({"NCCL_SOCKET_IFNAME": wanted}, ["lo", "eth0"])
    assert bool(found) is is_fault
    assert not hurting({"NCCL_SOCKET_IFNAME": wanted}, [])
