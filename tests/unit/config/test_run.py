"""Batch arithmetic."""

import pytest

from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError


def test_steps_come_from_epochs_where_none_are_given():
    config = load_config(["trainer.epochs=3", "trainer.tasks_per_step=4"])
    assert config.total_steps(10) == 7, "3 epochs of 10 tasks are 30 tasks, seven whole batches of 4"


def test_steps_win_over_epochs():
    assert load_config(["trainer.steps=5", "trainer.epochs=100"]).total_steps(1000) == 5


def test_batch_plan_resolves_every_word_to_a_number():
    config = load_config(
        [
            "trainer.steps=5",
            "trainer.tasks_per_step=6",
            "trainer.rollouts_per_task=4",
            "trainer.updates_per_batch=3",
            "algorithm.old_logprobs=recompute",
        ]
    )
    plan = config.batch_plan(40)
    assert plan["rollouts per step"] == 24
    assert plan["tasks per optimizer step"] == 2
    assert plan["optimizer steps"] == 15
    assert plan["rollouts in the run"] == 120


def test_one_key_sets_the_precision_of_both_heads():
    assert load_config(["model.fp32_head=true"]).engine.fp32_head
    with pytest.raises(ConfigError, match=r"engine.fp32_head must equal model.fp32_head \(False\), got True"):
        load_config(["engine.fp32_head=true"])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["trainer.updates_per_batch=2"], "algorithm.old_logprobs must be recompute or rollout"),
        (["algorithm=kto"], "environment.recorded_files must name rollouts of earlier runs"),
        (["algorithm.kl_coefficient=0.1", "algorithm.kl_estimator=k1"], "algorithm.kl_estimator must be k1 with"),
        (["algorithm.kl_coefficient=0.1", "algorithm.kl_in_reward=true"], "algorithm.kl_estimator must be k1 with"),
        (["algorithm=reinforce_pp", "algorithm.old_logprobs=current"], "algorithm.old_logprobs must be recompute or"),
        (["algorithm.kl_target=0.1"], "algorithm.kl_coefficient must be > 0 with algorithm.kl_target"),
        (["algorithm=gspo", "algorithm.reduction=token_mean"], "algorithm.reduction must be sequence_mean with"),
        (["algorithm=maxrl", "algorithm.overlong_buffer=10"], "algorithm.overlong_buffer must be 0 with"),
        (["algorithm.overlong_buffer=100000"], "algorithm.overlong_buffer must be < rollout.max_total_tokens"),
        (["algorithm.correction=icepop", "algorithm.old_logprobs=rollout"], "algorithm.correction must be none with"),
        (
            ["algorithm.policy_loss=kl_cov"],
            "trainer.updates_per_batch must be > 1, or algorithm.old_logprobs be rollout",
        ),
        (["environment.recorded_files=[x]"], "algorithm.old_logprobs must be rollout with environment.recorded_files"),
        (["algorithm.correction_high=0.3"], "algorithm.correction_high must be >= 1 and >="),
        (["alarms.logprob_diff_stop=0.01"], "alarms.logprob_diff_stop must be >= alarms.logprob_diff_warn"),
    ],
)
def test_objectives_that_contradict_themselves_are_refused(overrides: list[str], sentence: str):
    with pytest.raises(ConfigError) as caught:
        load_config(["trainer.tasks_per_step=4", *overrides])
    assert sentence in str(caught.value)


LONG = "rollout.max_total_tokens=128", "rollout.max_new_tokens=12"
GPUS = ("cluster=h100x1", "engine=vllm_gpu", "weight_sync=ipc", "model.compute_dtype=bfloat16")
SIZES = [
    (("trainer.tasks_per_step=10", "trainer.updates_per_batch=4"), "(4), got 10. Set it to 8 or 12"),
    (("trainer.tasks_per_step=3", "trainer.updates_per_batch=4"), "(4), got 3. Set it to 4"),
    (("trainer.tasks_per_step=8", "trainer.updates_per_batch=4", "algorithm.old_logprobs=recompute"), None),
    (("trainer.tasks_per_step=0",), "trainer.tasks_per_step must be > 0, got 0"),
    (("trainer.updates_per_batch=0",), "trainer.updates_per_batch must be > 0, got 0"),
    (("trainer.rollouts_per_task=1", "trainer.min_valid_rollouts=1"), "Raise it: a group of one has no baseline"),
    (("trainer.rollouts_per_task=2",), None),
    (
        ("trainer.rollouts_per_task=2", "trainer.min_valid_rollouts=3"),
        "min_valid_rollouts must be <= trainer.rollouts_per",
    ),
    ((*LONG, "trainer.micro_batch_tokens=127"), "trainer.micro_batch_tokens must be >= rollout.max_total_tokens (128)"),
    ((*LONG, "trainer.micro_batch_tokens=128"), None),
    (
        ("rollout.max_total_tokens=128", "rollout.max_new_tokens=128"),
        "rollout.max_new_tokens must be < rollout.max_total",
    ),
    (
        ("model.sequence_parallel_size=3", "cluster.num_policy_ranks=8"),
        "model.sequence_parallel_size must divide cluster.num_policy_ranks (8), got 3. Set it to 2 or 4",
    ),
    (("model.sequence_parallel_size=4", "cluster.num_policy_ranks=8"), None),
    (("model.sequence_parallel_size=16", "cluster.num_policy_ranks=8"), "got 16. Set it to 4 or 8"),
    (("cluster.num_policy_ranks=0",), "cluster.num_policy_ranks must be > 0, got 0"),
    (("cluster.num_policy_ranks=3", "trainer.tasks_per_step=2"), None),
    (("cluster.num_policy_ranks=4", "cluster.num_replicas=3"), "(4), got 3. Set it to 2 or 4"),
    ((*GPUS, "cluster.num_engines=3", "cluster.num_engines_per_gpu=2"), "(2), got 3. Set it to 2 or 4"),
    ((*GPUS, "cluster.num_policy_ranks=2"), "cluster.num_policy_ranks must fit 1 GPUs together with the engines"),
    ((*GPUS, "cluster.num_engines=2"), "must fit 1 GPUs together with the engines (2 GPUs, colocated)"),
    (("trainer.steps=0", "trainer.epochs=0"), "trainer.steps must be > 0 where trainer.epochs is 0"),
    ((*LONG, "algorithm.overlong_buffer=128"), "algorithm.overlong_buffer must be < rollout.max_total_tokens (128)"),
]


@pytest.mark.parametrize(("overrides", "refusal"), SIZES, ids=[" ".join(overrides) for overrides, _ in SIZES])
def test_sizes_that_do_not_fit_are_refused_before_the_start(overrides: tuple[str, ...], refusal: str | None):
    """CF-08: None is a combination that runs; micro-batches are packed by tokens, so that ranks need divide nothing."""
    if refusal is None:
        load_config(overrides)
        return
    with pytest.raises(ConfigError) as caught:
        load_config(overrides)
    assert refusal in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "num_heads", "refusal"),
    [
        ((*GPUS, "cluster.num_gpus_per_node=3", "cluster.num_gpus_per_engine=3"), 8, "(8), got 3. Set it to 2 or 4"),
        ((*GPUS, "cluster.num_gpus_per_node=4", "cluster.num_gpus_per_engine=4"), 8, None),
        (("cluster.num_gpus_per_engine=3",), 8, None),
        (("model.sequence_parallel_size=2", "cluster.num_policy_ranks=2"), 9, "(9), got 2. Set it to 1 or 3"),
        (("model.sequence_parallel_size=3", "cluster.num_policy_ranks=3"), 9, None),
    ],
)
def test_heads_that_are_not_shared_out_evenly_are_refused(
    overrides: tuple[str, ...], num_heads: int, refusal: str | None
):
    """CF-08: three GPUs an engine and eight heads; without GPUs an engine is never split."""
    config = load_config(overrides)
    if refusal is None:
        config.check_heads(num_heads)
        return
    with pytest.raises(ConfigError) as caught:
        config.check_heads(num_heads)
    assert f"must divide the query heads of model.path {refusal}" in str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "model.compile=true",
        "model.activation_offload=true",
        "model.dtype=bfloat16",
        "model.reshard_after_forward=false",
        "model.offload=optimizer",
        "model.sequence_parallel_size=2",
        "cluster.num_replicas=2",
    ],
)
def test_what_deepspeed_does_not_do_here_is_refused(override: str):
    name = override.split("=")[0]
    common = ["cluster.num_policy_ranks=2", "model.activation_checkpointing=true"]
    with pytest.raises(ConfigError, match=f"{name} must be .* with cluster.strategy=deepspeed"):
        load_config(["cluster.strategy=deepspeed", *common, override])
    load_config([*common, override])
    load_config(["cluster.strategy=deepspeed", *common, "model.lora.rank=4"])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), 512),
        ((*GPUS, "cluster.num_engines_per_gpu=3", "cluster.num_engines=3", "engine.gpu_memory_fraction=0.1"), 1536),
        ((*GPUS, "rollout.max_concurrent_rollouts=7"), 7),
    ],
)
def test_as_many_rollouts_are_played_at_once_as_engines_sample(overrides: tuple[str, ...], expected: int):
    assert load_config(list(overrides)).max_concurrent_rollouts == expected
