"""A slow validation gets its verdict before it counts as stuck."""

from mini_nat import MiniNat, OracleSandbox
from nat_tasks import answer, make_task

from skyrl_nat.cluster.topology import VALIDATION_DEADLINE_IN_JOBS
from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.plays import MAX_SECONDS
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator


def test_deadline_holds_a_whole_validation_of_which_every_job_takes_all_its_time() -> None:
    """The runs of the package's own tests are bounded together: the last one may start as their time ends."""
    sandbox, oracle = MiniNat(), OracleSandbox()
    task = make_task(mcp=["scale"], num_tests=2, is_installable=True)
    validator = NatAgentValidator(EnvironmentConfig(), sandbox, ReferenceOracle(oracle))
    assert validator.validate(task, {"files": answer(task)}, is_final=True).total == 1.0
    kinds = [job.kind for job in sandbox.jobs]
    assert {"nat_validate", "nat_own_tests", "nat_mcp_script", "nat_workflow_file"} == set(kinds)
    num_jobs = len([kind for kind in kinds if kind != "nat_own_tests"]) + len(oracle.jobs)
    job_s = SandboxConfig().job_timeout_s
    recorded_and_last = 2
    assert (num_jobs + recorded_and_last) * job_s + MAX_SECONDS <= VALIDATION_DEADLINE_IN_JOBS * job_s
