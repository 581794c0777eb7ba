"""A wheel that lacks a file, or has one that nobody tracks, is refused."""

import pytest
from loaded_script import load

wheel_contents = load("wheel_contents")
META = ["a-1.dist-info/entry_points.txt", "a-1.dist-info/METADATA"]


def test_what_is_tracked_is_wanted_with_presets_and_data_inside_the_package():
    wanted = wheel_contents.expected()
    assert {
        "skyrl_nat/conf/train.yaml",
        "skyrl_nat/conf/experiment/smoke_cpu.yaml",
        "skyrl_nat/service/static/index.html",
        "skyrl_nat/environments/nat_agent/data/library_train.parquet",
        "skyrl_nat/sandbox/inside/hosts",
        "skyrl_nat/monitoring/assets/grafana/provisioning/dashboards/skyrl_nat.yml",
    } <= wanted
    assert all(name.startswith("skyrl_nat/") for name in wanted)


def test_a_whole_wheel_has_no_faults():
    assert wheel_contents.faults_of(["skyrl_nat/a.py", *META], {"skyrl_nat/a.py"}) == []


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (META, "it must hold skyrl_nat/a.py"),
        (["skyrl_nat/a.py", "skyrl_nat/b.pyc", *META], "but has skyrl_nat/b.pyc"),
        (["skyrl_nat/a.py", "skyrl_nat/a.py", *META], "some twice"),
        (["skyrl_nat/a.py"], "no entry_points.txt"),
    ],
)
def test_what_is_wrong_is_told(names, fault):
    (found,) = wheel_contents.faults_of(names, {"skyrl_nat/a.py"})
    assert fault in found
