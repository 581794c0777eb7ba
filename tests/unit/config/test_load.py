"""Hydra overrides to a checked config: what is refused, and how."""

import dataclasses
import math
import sys

import pytest

from skyrl_nat.config.load import config_from_file, load_config, save_config
from skyrl_nat.errors import ConfigError


def test_defaults_compose_into_the_cpu_preset_parts():
    config = load_config([])
    assert (config.model.path, config.engine.kind, config.cluster.device) == ("smollm2-135m-instruct", "hf", "cpu")


def test_overrides_reach_through_an_experiment():
    config = load_config(["experiment=smoke_cpu", "algorithm=dapo", "trainer.steps=7", "engine=vllm"])
    assert (config.algorithm.name, config.trainer.steps, config.engine.kind) == ("dapo", 7, "vllm")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("trainer.stepz=3", "trainer.stepz must be a declared key, got an unknown one. Did you mean trainer.steps?"),
        ("trainer.steps=abc", "trainer.steps must have its declared type: Value 'abc'"),
        (
            "algorithm=nope",
            "algorithm must be one of cispo, dapo, dr_grpo, flow_grpo, grpo",
        ),
        ("engine.kind=foo", "engine.kind must have its declared type: Invalid value 'foo', expected one of"),
        ("optimizer.lr=nan", "optimizer.lr must be a finite number, got nan"),
        ("optimizer.lr=-1", "optimizer.lr must be >= 0, got -1.0"),
        ("optimizer.lr=inf", "optimizer.lr must be a finite number, got inf"),
        ("algorithm.clip_high=0.1", "algorithm.clip_high must be >= algorithm.clip_low (0.2), got 0.1"),
        ("rollout.top_p=0.9", "rollout.top_p must be 1.0, got 0.9"),
        ("rollout.top_k=5", "rollout.top_k must be -1 (off), got 5"),
        ("rollout.temperature=0", "rollout.temperature must be > 0, got 0.0"),
        ("trainer.rollouts_per_task=1", "trainer.min_valid_rollouts must be <= trainer.rollouts_per_task (1)"),
        ("trainer.updates_per_batch=3", "trainer.tasks_per_step must be a multiple of trainer.updates_per_batch (3)"),
        ("trainer.micro_batch_tokens=100", "trainer.micro_batch_tokens must be >= rollout.max_total_tokens"),
        (
            "model.sequence_parallel_size=2",
            "model.sequence_parallel_size must divide cluster.num_policy_ranks (1), got 2",
        ),
        ("model.sequence_parallel_size=0", "model.sequence_parallel_size must be > 0, got 0"),
        ("rollout.max_new_tokens=9000", "rollout.max_new_tokens must be < rollout.max_total_tokens (8192), got 9000"),
        ("weight_sync=gloo", "weight_sync.transport must be host with engine.kind=hf"),
        ("engine.adapters=separate", "engine.adapters must be merged with engine.kind=hf"),
        ("model.compute_dtype=bfloat16", "model.compute_dtype must be float32"),
        ("engine.num_speculative_tokens=3", "engine.num_speculative_tokens must be 0"),
        ("+engine.extra.speculative_config.method=ngram", "engine.num_speculative_tokens must be 0"),
        ("name=a/b", "name must be one folder name without slashes, got 'a/b'"),
        ("tracking.wandb_mode=maybe", "tracking.wandb_mode must be online, offline or disabled, got 'maybe'"),
        (
            "tracking.backends=[csv]",
            "tracking.backends must hold only jsonl, console, tensorboard, wandb, prometheus, got 'csv'",
        ),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(override: str, sentence: str):
    """Row 35: top_p and top_k are among them, the trainer could not score what they sample."""
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert sentence in str(caught.value)


def test_adapters_travel_apart_to_vllm_and_summed_up_to_the_embedded_engine():
    lora = "model.lora.rank=8"
    assert load_config(["engine=vllm", lora]).pushes_adapters
    assert load_config(["engine=vllm_gpu", lora, "cluster=h100x1", "weight_sync=ipc"]).pushes_adapters
    for others in ([lora], ["engine=vllm"], ["engine=vllm", lora, "engine.adapters=merged"]):
        assert not load_config(others).pushes_adapters
    with pytest.raises(ConfigError, match=r"model\.lora\.rank must be <= 512 with engine\.adapters=separate, got 513"):
        load_config(["engine=vllm", "model.lora.rank=513"])


def test_group_of_one_has_no_baseline():
    with pytest.raises(ConfigError, match=r"rollouts_per_task must be >= 2 with algorithm.advantage=grpo, got 1"):
        load_config(["trainer.rollouts_per_task=1", "trainer.min_valid_rollouts=1"])


def test_gpus_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match="fit 8 GPUs together with the engines"):
        apart = ["weight_sync=nccl", "cluster.placement=disaggregated", "model.offload=none"]
        load_config(["experiment=agenthands_h100x8", *apart])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["weight_sync=nccl"], "not be nccl where engines share the policy's GPUs"),
        (["cluster.placement=disaggregated"], "not be ipc with cluster.placement=disaggregated"),
        (["cluster.num_engines_per_gpu=2", "cluster.num_engines=2"], "leave 2 engines on one GPU"),
        (["cluster.num_engines_per_gpu=2"], "be a multiple of cluster.num_engines_per_gpu"),
    ],
)
def test_ways_to_the_engines_that_cannot_be_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(["experiment=agenthands_h100x1", *overrides])


def test_saved_config_reads_back_equal(tmp_path):
    config = load_config(["experiment=smoke_cpu", "trainer.steps=2", "optimizer.lr=3e-5"])
    save_config(config, tmp_path / "config.yaml")
    assert config_from_file(tmp_path / "config.yaml") == config


def test_saved_config_takes_overrides(tmp_path):
    save_config(load_config([]), tmp_path / "config.yaml")
    assert config_from_file(tmp_path / "config.yaml", ["evaluation.num_tasks=3"]).evaluation.num_tasks == 3


@pytest.mark.parametrize("text", [None, "", "- 1\n", "trainer: {stepz: 3}", "\tnope"])
def test_broken_saved_configs_are_refused_with_their_path(tmp_path, text: str | None):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        config_from_file(path)


@pytest.mark.parametrize("name", ["policy_loss", "advantage", "reduction", "kl_estimator", "correction"])
def test_an_unknown_name_of_a_formula_is_refused(name: str):
    """GM-11: nothing falls back to another formula."""
    with pytest.raises(ConfigError, match=f"algorithm.{name} must"):
        load_config([f"algorithm.{name}=nope"])


def test_keys_of_free_sections_are_set_like_others():
    config = load_config(["environment.reward_weights.tests=2", "engine.extra.max_num_batched_tokens=100"])
    assert config.environment.reward_weights == {"tests": 2.0}
    assert config.engine.extra == {"max_num_batched_tokens": 100}


def test_a_new_key_of_a_closed_section_is_refused():
    with pytest.raises(ConfigError, match="foo must be a declared key of TrainerConfig"):
        load_config(["+trainer.foo=1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("resume=None", "resume must be text with a meaning, got 'None'. Leave it out for its default."),
        ("resume=null", "resume must have a value, got null. Leave it out for its default"),
        ("resume=", "resume must not be empty, got ''"),
        ('resume="null"', "resume must be text with a meaning, got 'null'"),
        ("tracking.wandb_entity=None", "got 'None'. Write tracking.wandb_entity=null for none."),
        ("tracking.wandb_entity=", "tracking.wandb_entity must be null or not empty, got ''"),
        ('tracking.wandb_entity="null"', "tracking.wandb_entity must be text with a meaning, got 'null'"),
        ("environment.train_files=[None]", "environment.train_files must be text with a meaning, got 'None'"),
    ],
)
def test_only_null_stands_for_nothing(override: str, message: str):
    """CF-02."""
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert message in str(caught.value)


def test_null_stands_for_nothing():
    """CF-02."""
    assert load_config(["tracking.wandb_entity=null"]).tracking.wandb_entity is None


@pytest.mark.parametrize(
    ("value", "override", "message"),
    [
        ("", "trainer.steps=${oc.env:SIZE}", "trainer.steps must have its declared type: Value '' of type 'str'"),
        ("", "name=${oc.env:SIZE}", "name must be one folder name without slashes, got ''"),
        (
            None,
            "trainer.steps=${oc.env:SIZE}",
            "trainer.steps must have a value, but reads the environment variable SIZE",
        ),
        (
            None,
            "name=${oc.env:SIZE}",
            "name must have a value, but reads the environment variable SIZE, which is not set",
        ),
        (None, "trainer.steps=${oc.env:SIZE,???}", "trainer.steps must have its declared type: Value '???'"),
        (None, "name=${oc.env:SIZE,???}", "name must have a value, got ???"),
        (None, "trainer.steps=???", "trainer.steps must have a value, got ???"),
    ],
)
def test_environment_variables_that_are_empty_or_missing_are_refused_at_the_start(
    monkeypatch, value: str | None, override: str, message: str
):
    """CF-04."""
    if value is not None:
        monkeypatch.setenv("SIZE", value)
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert message in str(caught.value)


def test_environment_variables_become_what_their_field_is_and_are_saved_as_it(monkeypatch, tmp_path):
    """CF-04."""
    monkeypatch.setenv("SIZE", "8")
    config = load_config(["trainer.steps=${oc.env:SIZE}"])
    assert (config.trainer.steps, type(config.trainer.steps)) == (8, int)
    save_config(config, tmp_path / "config.yaml")
    monkeypatch.delenv("SIZE")
    assert config_from_file(tmp_path / "config.yaml").trainer.steps == 8


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=nan", "optimizer.lr must be a finite number"),
        ("optimizer.lr=inf", "optimizer.lr must be a finite number"),
        ("optimizer.lr=1e400", "optimizer.lr must be a finite number"),
        ("optimizer.lr=-1", "optimizer.lr must be >= 0"),
        ("optimizer.lr=true", "optimizer.lr must have its declared type"),
        ("optimizer.beta2=nan", "optimizer.beta2 must be a finite number"),
        ("trainer.epochs=true", "trainer.epochs must have its declared type"),
        ("trainer.epochs=nan", "trainer.epochs must have its declared type"),
        ("trainer.epochs=-1", "trainer.epochs must be >= 0"),
        ("trainer.rollouts_per_task=2.0", "trainer.rollouts_per_task must have its declared type"),
        ("rollout.temperature=0", "rollout.temperature must be > 0"),
        ("rollout.temperature=nan", "rollout.temperature must be a finite number"),
        ("rollout.eval_temperature=-inf", "rollout.eval_temperature must be a finite number"),
        ("algorithm.clip_low=0", "algorithm.clip_low must be in (0, 1)"),
        ("algorithm.clip_high=nan", "algorithm.clip_high must be a finite number"),
        ("algorithm.kl_coefficient=-0.1", "algorithm.kl_coefficient must be >= 0"),
        ("environment.reward_weights.tests=nan", "environment.reward_weights.tests must be a finite number"),
        ("planner.max_cost=nan", "planner.max_cost must be a finite number"),
        ("cluster.call_timeout_s=inf", "cluster.call_timeout_s must be a finite number"),
        ("seed=true", "seed must have its declared type"),
        ("model.compile=2", "model.compile must be true or false, got 2"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_with_key_and_range(override: str, message: str):
    """CF-05."""
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert message in str(caught.value)


def sections(section, path: str = ""):
    """Yield every section of a config with its path."""
    yield path, section
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from sections(value, f"{path}{field.name}.")


def test_no_fraction_of_any_section_may_be_nan_or_infinite():
    """CF-05, for its whole kind: a field that is added later is among them."""
    checked = 0
    for path, section in sections(load_config([])):
        for field in dataclasses.fields(section):
            for value in (math.nan, math.inf, -math.inf) if isinstance(getattr(section, field.name), float) else ():
                with pytest.raises(ConfigError, match=f"{field.name} must be a finite number") as caught:
                    dataclasses.replace(section, **{field.name: value})
                assert path in str(caught.value)
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("engine.extra.hf_token=distinctive-value-0815", "engine.extra.hf_token"),
        ("engine.extra.nested.api_key=distinctive-value-0815", "engine.extra.nested.api_key"),
        ("engine.extra.credentials={user: distinctive-value-0815}", "engine.extra.credentials.user"),
        ("engine.extra.pin_password=4711081542", "engine.extra.pin_password"),
        ("name=${oc.env:SOME_TOKEN}", "name"),
        ("tracking.wandb_project=x-distinctive-value-0815", "tracking.wandb_project"),
        ("environment.train_files=[distinctive-value-0815]", "environment.train_files"),
        ('resume="https://user:distinctive@h/step_000001"', "resume"),
        ('resume="https://distinctive-token@h/step_000001"', "resume"),
        ('resume="s3://key:distinctive/with/slashes@h/step_000001"', "resume"),
        ('model.path="https://user:distinctive@h/m"', "model.path"),
        ('model.path="https://user:distinctive@with@signs@h/m"', "model.path"),
        ('checkpoint.mirror="s3://b/x?key=distinctive"', "checkpoint.mirror"),
        ('checkpoint.mirror="az://b/x?sv=1&sig=distinctive"', "checkpoint.mirror"),
        ('checkpoint.mirror="https://b/x?X-Amz-Signature=distinctive"', "checkpoint.mirror"),
        ('environment.train_files=["https://b/x?access_token=distinctive"]', "environment.train_files"),
        ('cluster.environment.HTTP_PROXY="http://user:distinctive@proxy:3128"', "cluster.environment.HTTP_PROXY"),
        ('cluster.environment.https_proxy="user:distinctive@proxy:3128"', "cluster.environment.https_proxy"),
        ('cluster.environment.REDIS="redis://:distinctive@h:6379"', "cluster.environment.REDIS"),
        ("cluster.environment.GITHUB_PAT=distinctive", "cluster.environment.GITHUB_PAT"),
        ("cluster.environment.OPENAI_APIKEY=distinctive", "cluster.environment.OPENAI_APIKEY"),
        ("cluster.environment.PGPASS=distinctive", "cluster.environment.PGPASS"),
        ("cluster.environment.PGPASSWORD=distinctive", "cluster.environment.PGPASSWORD"),
        ("cluster.environment.SMTP_PASS=distinctive", "cluster.environment.SMTP_PASS"),
        ("cluster.environment.REGISTRY_AUTH=distinctive", "cluster.environment.REGISTRY_AUTH"),
        ("cluster.environment.HF_TOKEN_2=distinctive", "cluster.environment.HF_TOKEN_2"),
        ("cluster.environment.accessToken=distinctive", "cluster.environment.accessToken"),
    ],
)
def test_secrets_are_refused_without_being_shown(monkeypatch, tmp_path, override: str, path: str):
    monkeypatch.setenv("SOME_TOKEN", "distinctive-value-0815")
    with pytest.raises(ConfigError, match=f"{path} must not") as caught:
        load_config([override])
    assert "distinctive" not in str(caught.value)
    if "oc.env" not in override:
        save_config(load_config([]), tmp_path / "config.yaml")
        with pytest.raises(ConfigError, match=f"{path} must not"):
            config_from_file(tmp_path / "config.yaml", [override])


def test_names_of_variables_and_words_that_only_look_like_secrets_are_taken(monkeypatch):
    monkeypatch.setenv("SHORT_KEY", "runs")
    config = load_config(["engine.extra.max_num_batched_tokens=100", "planner.api_key_env=OTHER_KEY", "root_dir=runs"])
    assert config.planner.api_key_env == "OTHER_KEY"


@pytest.mark.parametrize(
    "override",
    [
        "rollout.max_new_tokens=16",
        "model.logprob_chunk_tokens=64",
        "engine.extra.eos_token=x",
        "engine.extra.hf_overrides.pad_token=x",
        "engine.extra.bytes_per_token=2",
        "engine.extra.tokenizer=x",
        "engine.extra.compass=north",
        "engine.extra.bypass=x",
        "engine.extra.signature=x",
        "cluster.environment.PATH=/usr/bin",
        "cluster.environment.PYTHONPATH=/code",
        "cluster.environment.XAUTHORITY=/home/a/file",
        "cluster.environment.SSH_AUTH_SOCK=/tmp/socket",
        "cluster.environment.MONKEY=1",
        'cluster.environment.HTTP_PROXY="http://proxy:3128"',
        "cluster.environment.NO_PROXY=localhost",
        'cluster.environment.ENDPOINT="http://h:8000/models/x@main"',
        'resume="memory://runs/name/step_000001"',
        'resume="sftp://user@host/runs/name/step_000001"',
        'resume="abfs://container@account.dfs.core.windows.net/run/step_000001"',
        'checkpoint.mirror="s3://bucket/runs?endpoint=h&version=2"',
        'checkpoint.mirror="s3://bucket/runs?key="',
        'environment.sandbox.container_image="python:3.11@sha256:0123"',
        "environment.train_files=['builtin:nat_agent/train']",
    ],
)
def test_what_only_looks_like_a_secret_is_taken(override: str):
    load_config([override])


@pytest.mark.parametrize("url", ["s3://bucket/x", "file:///data/runs", "https://user:distinctive@h/x"])
def test_a_url_as_folder_of_runs_is_refused_with_the_key_that_takes_one(url: str):
    with pytest.raises(ConfigError, match=r"root_dir must be a folder.*checkpoint\.mirror") as caught:
        load_config([f'root_dir="{url}"'])
    assert "distinctive" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("cluster.environment.NCCL_DEBUG=INFO", "INFO"),
        ("cluster.environment.NCCL_NTHREADS=4", "4"),
        ("cluster.environment.SHARE=0.5", "0.5"),
        ("cluster.environment.FLAG='true'", "true"),
    ],
)
def test_environment_of_workers_is_text(override: str, found: str) -> None:
    """RY-04."""
    assert list(load_config([override]).cluster.environment.values()) == [found]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster.environment.FLAG=true", "cluster.environment.FLAG must be text or a number, got True"),
        ("cluster.environment.FLAG=null", "cluster.environment.FLAG must be text or a number, got None"),
        ("cluster.environment.FLAG={A:1}", "cluster.environment.FLAG must be text or a number, got {'A': 1}"),
        ("cluster.environment.FLAG=[1]", r"cluster.environment.FLAG must be text or a number, got \[1\]"),
        ("cluster.environment.A-B=1", "cluster.environment.A-B must be a variable's name"),
        ("cluster.environment.HF_TOKEN=abc", "cluster.environment.HF_TOKEN must not be in a config"),
        ("cluster.environment.OTHER_KEY=1234", "cluster.environment.OTHER_KEY must not be in a config"),
    ],
)
def test_environment_without_a_certain_text_and_secrets_are_refused(override: str, message: str) -> None:
    """RY-04."""
    with pytest.raises(ConfigError, match=message):
        load_config([override])


def test_a_refusal_ends_under_a_debugger_too(monkeypatch):
    """OmegaConf keeps causes where a trace function is set, and then an error may be its own cause."""
    monkeypatch.delenv("SIZE", raising=False)
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        with pytest.raises(ConfigError, match="reads the environment variable SIZE"):
            load_config(["trainer.steps=${oc.env:SIZE}"])
    finally:
        sys.settrace(before)
