import asyncio
import json
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

from skyrl_nat.cli import main
from skyrl_nat.deploy.material import Material, prepared, server_plan
from skyrl_nat.deploy.running import Subject, deployed
from skyrl_nat.errors import ConfigError


def material(folder: Path, what: str, *overrides: str) -> Material:
    async def prepare() -> Material:
        async with prepared(what, "latest", overrides, folder / "deployment") as found:
            return found

    return asyncio.run(prepare())


def flag(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), hidden_size=64)


def test_vllm_serves_with_the_numbers_and_the_context_of_training_and_with_prefix_caching(
    tmp_path: Path, model: Path
) -> None:
    found = material(tmp_path, str(model), "engine=vllm", "rollout.max_total_tokens=1500", "engine.deterministic=true")
    plan = server_plan(found, tmp_path / "deployment", probation_s=1.0)
    command = plan.command
    assert "--enable-prefix-caching" in command and "--no-enable-prefix-caching" not in command
    assert (flag(command, "--model"), flag(command, "--served-model-name")) == (str(model), "policy")
    assert (flag(command, "--max-model-len"), flag(command, "--dtype")) == ("1500", "float32")
    assert flag(command, "--logprobs-mode") == "processed_logprobs"
    assert flag(command, "--host") == "127.0.0.1"
    assert f":{flag(command, '--port')}/v1" in plan.endpoint.base_url
    assert not any("weight-transfer" in word or "tokenizer-init" in word for word in command)
    assert plan.endpoint.stop_token_ids == (2,)


def test_an_adapter_is_served_beside_its_model_under_the_policys_name(tmp_path: Path, model: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 12}))
    found = material(tmp_path, str(adapter), "engine=vllm", f"model.path={model}")
    command = server_plan(found, tmp_path / "deployment", probation_s=1.0).command
    assert flag(command, "--served-model-name") == "base"
    assert flag(command, "--lora-modules") == f"policy={adapter}"
    assert ("--enable-lora" in command, flag(command, "--max-lora-rank")) == (True, "16")
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="must say the adapter's rank"):
        server_plan(found, tmp_path / "deployment", probation_s=1.0)


def test_the_embedded_engine_gets_the_configuration_of_training(tmp_path: Path, model: Path) -> None:
    found = material(tmp_path, str(model), "rollout.max_total_tokens=1500")
    plan = server_plan(found, tmp_path / "deployment", probation_s=1.0)
    assert plan.command[1:6] == ("-m", "skyrl_nat.cli", "deploy", "engine", str(model))
    assert "max_total_tokens: 1500" in Path(flag(plan.command, "--config")).read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "nothing-here"], "model.path must be an existing folder"),
        (["agents", "m", "--host", "0.0.0.0"], "--host must be an address of this machine alone"),
        (["agents", "m", "--deadline", "0"], "Limits of a deployment must be above 0"),
        (["agents", "m", "--max-plans", "0"], "--max-plans >= 1"),
        (["flag", "here", "--percent", "101"], "percent in 0..100"),
        (["feedback", "here", "traces"], "must hold created agents"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKYRL_NAT_DEPLOY_KEY", raising=False)
    assert main(["deploy", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and len(error.strip().splitlines()) == 1


def test_a_flag_is_written_for_the_running_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "flag", str(tmp_path), "--percent", "12.5"]) == 0
    assert json.loads((tmp_path / "flag.json").read_text()) == {"is_on": True, "percent": 12.5}
    assert main(["deploy", "flag", str(tmp_path), "--off"]) == 0
    assert json.loads((tmp_path / "flag.json").read_text())["is_on"] is False
    assert "off" in capsys.readouterr().out


def test_what_was_served_before_is_tried_where_the_new_subject_cannot_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DP-02, rollback across a restart; here neither can be served, and the second failure is raised."""
    before = {"what": "served-before", "checkpoint": "latest", "overrides": []}
    (tmp_path / "current.json").write_text(json.dumps(before))

    async def scenario() -> None:
        async with deployed(Subject(what="new-one"), tmp_path, probation_s=0.1):
            raise AssertionError

    with pytest.raises(ConfigError, match="got 'served-before'"):
        asyncio.run(scenario())
    said = capsys.readouterr().err
    assert "new-one cannot be served" in said and "Going back to served-before" in said
    assert json.loads((tmp_path / "current.json").read_text()) == before
