"""Placement is arithmetic."""

import pytest

from skyrl_nat.cluster.placement import NodeResources, devices_of, plan_placement, require_own_gpus, visible_devices
from skyrl_nat.config.cluster import ClusterConfig, Device, Placement
from skyrl_nat.errors import ConfigError, WorkerError

LAPTOP = NodeResources(name="laptop", num_cpus=2, num_gpus=0)


def gpu_nodes(count: int, gpus: int = 8) -> list[NodeResources]:
    return [NodeResources(name=f"node{i}", num_cpus=128, num_gpus=gpus) for i in range(count)]


def gpu_config(**changes) -> ClusterConfig:
    return ClusterConfig(**{"device": Device.cuda, "num_gpus_per_node": 8, "num_policy_ranks": 8, **changes})


def test_laptop_holds_one_of_each_and_all_threads():
    plan = plan_placement(ClusterConfig(), [LAPTOP])
    assert sorted((slot.role, slot.rank, slot.node) for slot in plan.slots) == [
        ("engine", 0, 0),
        ("environment", 0, 0),
        ("policy", 0, 0),
        ("reward", 0, 0),
    ]
    assert plan.num_threads == 2
    assert plan.bundles == ({"CPU": 1.0},)


def test_overlapped_engine_and_trainer_share_the_threads():
    assert plan_placement(ClusterConfig(), [LAPTOP], is_overlapped=True).num_threads == 1


def test_two_policy_ranks_on_a_laptop_share_its_threads():
    assert plan_placement(ClusterConfig(num_policy_ranks=2), [LAPTOP]).num_threads == 1


def test_colocated_engines_cover_the_policys_gpus():
    plan = plan_placement(gpu_config(num_engines=4, num_gpus_per_engine=2), gpu_nodes(1))
    assert [slot.gpus for slot in plan.of_role("policy")] == [(i,) for i in range(8)]
    assert [slot.gpus for slot in plan.of_role("engine")] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_disaggregated_engines_come_after_the_policy_and_never_overlap():
    config = gpu_config(placement=Placement.disaggregated, num_policy_ranks=4, num_engines=2, num_gpus_per_engine=2)
    plan = plan_placement(config, gpu_nodes(1))
    used = [(slot.node, gpu) for slot in plan.slots for gpu in slot.gpus]
    assert len(used) == len(set(used)) == 8
    assert [slot.gpus for slot in plan.of_role("engine")] == [(4, 5), (6, 7)]


def test_engines_that_share_gpus_go_round_them():
    shared = {"num_gpus_per_node": 2, "num_policy_ranks": 2, "num_engines_per_gpu": 3}
    plan = plan_placement(gpu_config(**shared, num_engines=6), gpu_nodes(1, 2))
    assert [slot.gpus for slot in plan.of_role("engine")] == [(0,), (1,)] * 3
    apart = {**shared, "placement": Placement.disaggregated, "num_policy_ranks": 1}
    plan = plan_placement(gpu_config(**apart, num_engines=3), gpu_nodes(1, 2))
    assert [slot.gpus for slot in plan.of_role("engine")] == [(1,)] * 3


def test_second_node_takes_the_ranks_that_do_not_fit_the_first():
    config = gpu_config(num_nodes=2, num_policy_ranks=16, num_engines=4, num_gpus_per_engine=4)
    plan = plan_placement(config, gpu_nodes(2))
    assert [slot.node for slot in plan.of_role("policy")] == [0] * 8 + [1] * 8
    assert [(slot.node, slot.gpus[0]) for slot in plan.of_role("engine")] == [(0, 0), (0, 4), (1, 0), (1, 4)]


def test_engine_across_two_nodes_is_refused():
    config = gpu_config(
        placement=Placement.disaggregated, num_nodes=2, num_policy_ranks=6, num_engines=1, num_gpus_per_engine=4
    )
    with pytest.raises(ConfigError, match="let engine 0 fit one node, GPUs 6 to 9 do not"):
        plan_placement(config, gpu_nodes(2))


def test_shortfall_is_said_in_words():
    with pytest.raises(ConfigError, match="must find 1 nodes with 8 GPUs each, Ray sees laptop: 0 GPUs, 2 CPUs"):
        plan_placement(gpu_config(), [LAPTOP])


def test_small_nodes_are_passed_over():
    head = NodeResources(name="head", num_cpus=0, num_gpus=8)
    plan = plan_placement(gpu_config(), [LAPTOP, head, *gpu_nodes(1)])
    assert plan.bundles == ({"CPU": 1.0, "GPU": 8.0},)


def test_neighbours_are_the_policy_ranks_on_an_engines_gpus():
    plan = plan_placement(gpu_config(num_engines=4, num_gpus_per_engine=2), gpu_nodes(1))
    assert plan.neighbours() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    shared = gpu_config(num_gpus_per_node=2, num_policy_ranks=2, num_engines=4, num_engines_per_gpu=2)
    assert plan_placement(shared, gpu_nodes(1, 2)).neighbours() == [[0], [1], [0], [1]]
    apart = gpu_config(placement=Placement.disaggregated, num_policy_ranks=4, num_engines=1, num_gpus_per_engine=2)
    assert plan_placement(apart, gpu_nodes(1)).neighbours() == [[0, 0]]
    assert plan_placement(ClusterConfig(), [LAPTOP]).neighbours() == [[0]]


@pytest.mark.parametrize(
    ("places", "inherited", "found"),
    [
        ("0,1", None, "0,1"),
        ("1", "", "1"),
        ("0", "3", "3"),
        ("1", "3,5", "5"),
        ("0,1", "2,3", "2,3"),
        ("1,0", "GPU-a,GPU-b", "GPU-b,GPU-a"),
        ("1", "MIG-a,MIG-b", "MIG-b"),
        ("7", "0,1,2,3,4,5,6,7", "7"),
    ],
)
def test_places_count_among_the_gpus_that_a_node_may_use(places: str, inherited: str | None, found: str):
    """RY-05."""
    assert visible_devices(places, inherited) == found


@pytest.mark.parametrize(
    ("inherited", "devices"),
    [
        (None, ["0", "1"]),
        ("", ["0", "1"]),
        ("0,1", ["0", "1"]),
        ("1,0", ["1", "0"]),
        ("2, 3", ["2", "3"]),
        ("GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
        ("MIG-a,MIG-b,MIG-c", ["MIG-a", "MIG-b"]),
        ("5,6,7", ["5", "6"]),
    ],
)
@pytest.mark.parametrize("role", ["policy", "engine"])
def test_two_workers_of_a_node_get_devices_of_their_own(inherited: str | None, devices: list[str], role: str):
    """RY-05: whoever made the list, Ray, Slurm or the user; a worker's place counts within it."""
    config = gpu_config(num_gpus_per_node=2, num_policy_ranks=2, num_engines=2)
    slots = plan_placement(config, gpu_nodes(1, 2)).of_role(role)
    found = [visible_devices(",".join(map(str, slot.gpus)), inherited) for slot in slots]
    assert found == devices
    require_own_gpus(role, {rank: {"node": "a", "gpus": gpus} for rank, gpus in enumerate(found)}, 1)


def test_a_list_that_names_a_gpu_twice_is_noticed():
    """RY-05."""
    found = {rank: {"node": "a", "gpus": visible_devices(str(rank), "3,3")} for rank in range(2)}
    with pytest.raises(WorkerError, match="ranks 0, 1 all see 3 on node a"):
        require_own_gpus("policy", found, 1)


def test_place_on_a_gpu_that_the_node_does_not_show_is_refused():
    with pytest.raises(WorkerError, match="1 of those visible, got CUDA_VISIBLE_DEVICES=3"):
        visible_devices("1", "3")


def test_two_workers_on_one_gpu_are_refused_unless_they_are_to_share_it():
    """RY-05."""
    apart = {0: {"node": "a", "gpus": "0,1"}, 1: {"node": "a", "gpus": "2,3"}, 2: {"node": "b", "gpus": "0,1"}}
    require_own_gpus("engine", apart, 1)
    together = {0: {"node": "a", "gpus": "0"}, 1: {"node": "a", "gpus": "0"}}
    require_own_gpus("engine", together, 2)
    with pytest.raises(WorkerError, match="Each engine must have GPUs of its own, but ranks 0, 1 all see 0 on node a"):
        require_own_gpus("engine", together, 1)
    unset = {0: {"node": "a", "gpus": ""}, 1: {"node": "a", "gpus": ""}}
    with pytest.raises(WorkerError, match="ranks 0, 1 all see every GPU on node a"):
        require_own_gpus("policy", unset, 1)


def test_every_gpu_that_is_held_is_a_device_and_several_engines_may_share_one():
    config = gpu_config(num_gpus_per_node=2, num_nodes=2, num_policy_ranks=3, num_engines=4, num_engines_per_gpu=2)
    assert devices_of(plan_placement(config, gpu_nodes(2, 2)), config) == (
        4,
        {"policy": [(0,), (1,), (2,)], "engine": [(0,), (1,), (0,), (1,)]},
    )
    wide = gpu_config(placement=Placement.disaggregated, num_policy_ranks=4, num_engines=2, num_gpus_per_engine=2)
    assert devices_of(plan_placement(wide, gpu_nodes(1)), wide)[1]["engine"] == [(4, 5), (6, 7)]


def test_without_gpus_processes_that_take_turns_are_one_device():
    config = ClusterConfig(num_policy_ranks=2)
    assert devices_of(plan_placement(config, [LAPTOP]), config) == (2, {"policy": [(0,), (1,)], "engine": [(0,)]})
    overlapped = plan_placement(config, [LAPTOP], is_overlapped=True)
    assert devices_of(overlapped, config) == (3, {"policy": [(0,), (1,)], "engine": [(2,)]})
    apart = ClusterConfig(placement=Placement.disaggregated, num_engines=2, num_engines_per_gpu=2)
    assert devices_of(plan_placement(apart, [LAPTOP]), apart) == (2, {"policy": [(0,)], "engine": [(1,), (1,)]})
