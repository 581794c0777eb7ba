"""Shared memory that is enough and that is not."""

from doctor_parts import config

from skyrl_nat.doctor.shared_memory import check_shared_memory, judge, needed_bytes

GIB = 2**30


def test_need_is_the_object_store_and_two_buckets_for_each_engine() -> None:
    assert needed_bytes(config("weight_sync.bucket_mib=512")) == 3 * GIB
    assert needed_bytes(config("weight_sync.bucket_mib=512", "cluster.num_engines=2")) == 4 * GIB


def test_a_container_with_docker_s_64_mib_is_wrong() -> None:
    check = judge(3 * GIB, 64 * 2**20)
    assert (check.verdict, check.expected, check.found) == ("WRONG", ">= 3.0 GiB", "0.1 GiB")
    assert judge(3 * GIB, 3 * GIB).verdict == "ok"


def test_a_machine_without_it_and_a_running_cluster_are_skipped(tmp_path) -> None:
    assert check_shared_memory(config(), tmp_path / "none").verdict == "skipped"
    assert check_shared_memory(config("cluster.ray_address=10.0.0.1:6379")).verdict == "skipped"
    assert check_shared_memory(config("weight_sync.bucket_mib=1"), tmp_path).verdict in ("ok", "WRONG")
