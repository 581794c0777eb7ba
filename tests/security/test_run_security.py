"""One small training run, looked at from outside: who can reach it, and what it tells of the secrets around it."""

import ast
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import small_run
from listening import listening_of
from strangers import NOT_THERE, OF_GRPC, REFUSED, grpc_answers

import skyrl_nat
from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.sandbox.profiles import open_sandbox

pytestmark = pytest.mark.slow

SECRET = "distinctive-4711-value-of-no-other-use"
SECRET_VARIABLES = ("GEMINI_API_KEY", "WANDB_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY")
PACKAGE = Path(skyrl_nat.__file__).parent
NO_PICKLE = ("pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib")
MAY_PICKLE = {
    "weight_sync/links.py": "handles of GPU memory between processes of one node, over the ranks' own store",
    "checkpoint/safe_reading.py": "torch's description of a checkpoint; of a pickle only torch's own records are made",
}


@dataclass(frozen=True)
class Looked:
    """What was seen of a run while it trained."""

    folder: Path
    ray_folder: Path
    listening: dict[str, str]
    """Address with port -> process."""
    answers: dict[str, dict[str, set[str]]]
    """Of those that speak gRPC: what each method answered to who does not know the run's word, by code."""
    num_processes: int
    output: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRET_VARIABLES:
            patch.setenv(name, SECRET)
        process = small_run.start(
            folder,
            *("name=r", *small_run.LONG, "cluster.num_policy_ranks=2", "cluster.num_environment_workers=2"),
            *("rollout.harness=skyrl_nat.rollouts.harnesses.openai_client:make_harness",),
            *("tracking.backends=[jsonl,console,tensorboard,wandb]", "tracking.wandb_mode=offline"),
        )
    small_run.wait_for_step(folder, "r", 2, process)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    words = [word for member in family for word in member.cmdline()]
    [ray_folder] = {Path(word.partition("=")[2]).parent for word in words if word.startswith("--log_dir=")}
    listening = {address: " ".join(member.cmdline())[:120] for member in family for address in listening_of(member.pid)}
    with ThreadPoolExecutor(8) as pool:  # what speaks something else is waited for
        asked = dict(
            zip(listening, pool.map(grpc_answers, (name.replace("::1:", "[::1]:") for name in listening)), strict=True)
        )
    process.terminate()
    output, _ = process.communicate(timeout=120)
    answers = {address: found for address, found in asked.items() if found}
    yield Looked(folder, ray_folder, listening, answers, len(family), output)


def files_with(secret: str, folder: Path) -> list[str]:
    """Return the files below a folder that hold a secret, or its name only in their path."""
    wanted = secret.encode()
    return [
        str(path)
        for path in folder.rglob("*")
        if secret in str(path) or (path.is_file() and not path.is_symlink() and wanted in path.read_bytes())
    ]


def test_nothing_of_a_run_listens_on_an_address_that_others_can_reach(run: Looked) -> None:
    """Ray's servers, the ranks' stores, gloo, the gateway: all on the loopback address, with no exception."""
    outside = {address: who for address, who in run.listening.items() if not address.startswith(("127.", "::1:"))}
    assert outside == {}
    assert run.num_processes > 10


def test_other_users_of_the_machine_cannot_call_ray(run: Looked) -> None:
    """Its head, its raylet and every worker ask for the run's word."""
    assert {"gcs_server", "raylet"} <= {Path(run.listening[address].split()[0]).name for address in run.answers}
    assert len(run.answers) > 5
    for address, found in run.answers.items():
        assert REFUSED in found, f"{run.listening[address]} at {address} refuses nothing"
        rest = {code: names - set(OF_GRPC) for code, names in found.items() if code not in (REFUSED, NOT_THERE)}
        assert not any(rest.values()), f"{run.listening[address]} at {address} answers a stranger: {rest}"
    assert len(run.listening) > 10, "the tables were read"


def test_no_file_of_a_run_or_of_ray_holds_a_secret_of_the_environment(run: Looked) -> None:
    """Config, metrics, rollouts, checkpoints, WandB's and TensorBoard's files, all logs."""
    folder = run.folder / "runs" / "r"
    for name in ("config.yaml", "metrics.jsonl", "rollouts", "checkpoints", "wandb", "tensorboard"):
        assert (folder / name).exists()
    assert any(run.ray_folder.rglob("*.log"))
    assert files_with(SECRET, run.folder) == []
    assert files_with(SECRET, run.ray_folder) == []
    assert SECRET not in run.output


@pytest.mark.parametrize("override", ["engine.extra.hf_token={}", "name=x-{}", "model.path=https://user:{}@host/model"])
def test_a_secret_in_an_override_starts_nothing_and_is_not_repeated(tmp_path: Path, override: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", SECRET)
        process = small_run.start(tmp_path, override.format(SECRET), command="plan")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "must not" in output
    assert SECRET not in output
    assert files_with(SECRET, tmp_path) == []


def test_the_sandbox_sees_none_of_the_secrets() -> None:
    """Neither in its environment nor in that of any process that it can look into."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRET_VARIABLES:
            patch.setenv(name, SECRET)
        sandbox = open_sandbox(SandboxConfig(python=sys.executable), preload=("json",))
        try:
            command = "env; cat /proc/*/environ /proc/*/task/*/environ 2>/dev/null | tr '\\0' '\\n'; echo seen"
            result = sandbox.run(SandboxJob(kind="bash", files={}, arguments={"command": command}))
        finally:
            sandbox.close()
    assert result.status == "done", result
    assert "seen" in result.output["output"]
    assert "PATH=" in result.output["output"], "the environment was read"
    assert SECRET not in result.output["output"]
    assert not [name for name in SECRET_VARIABLES if name in result.output["output"]]


def test_what_listens_speaks_json_alone() -> None:
    """Nothing that comes over HTTP is unpickled; the places that unpickle are named with their reasons."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        if imported & set(NO_PICKLE):
            found.add(path.relative_to(PACKAGE).as_posix())
        if imported & {"aiohttp", "http"}:
            assert not re.search(r"\bpickle|yaml\.(unsafe_)?load\b|torch\.load", path.read_text(encoding="utf-8")), path
    assert found == set(MAY_PICKLE)
