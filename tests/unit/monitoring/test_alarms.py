"""Six alarms, each with its own cause and nothing else."""

import pytest

from skyrl_nat.config.load import load_config
from skyrl_nat.monitoring.alarms import check_alarms

GOOD = {
    "batch/first_policy_kl": 0.0,
    "batch/first_logprob_diff": 0.001,
    "rollout/staleness/max": 0.0,
    "batch/num_sampled_tokens": 100.0,
    "batch/num_trained_tokens": 100.0,
    "batch/no_signal_groups": 0.5,
}


KL = ["alarms.reference_kl_warn=0.1", "alarms.reference_kl_stop=0.5"]


@pytest.mark.parametrize(
    ("change", "overrides", "text", "is_fatal"),
    [
        ({"batch/first_policy_kl": -1e-8}, ["algorithm.old_logprobs=recompute"], "1e-08", False),
        ({"batch/first_logprob_diff": 0.021}, [], "must agree on log-probs", False),
        ({"batch/first_logprob_diff": 0.21}, [], "must agree on log-probs", True),
        ({"rollout/staleness/max": 1.0}, [], "older than trainer.staleness (0 versions), found 1", True),
        ({"rollout/staleness/max": 3.0}, ["trainer.staleness=2"], "(2 versions), found 3", True),
        ({"batch/num_trained_tokens": 99.0}, [], "100 were sampled, 99 trained", True),
        ({"batch/no_signal_groups": 0.95}, [], "95% of this batch", False),
        ({"loss/token_kl": 0.11}, KL, "(KL <= 0.1 nats per token), found 0.11", False),
        ({"loss/token_kl": 0.51}, KL, "found 0.51", True),
        ({"loss/token_kl": 0.6}, ["alarms.reference_kl_stop=0.5"], "(KL <= 0.5", True),
    ],
)
def test_each_alarm_has_its_own_cause(
    change: dict[str, float], overrides: list[str], text: str, is_fatal: bool
) -> None:
    """Rows 13, 30, 38, 50, 61 and 63."""
    (alarm,) = check_alarms(GOOD | change, load_config(overrides))
    assert text in alarm.text
    assert alarm.is_fatal is is_fatal


def test_a_good_step_is_silent() -> None:
    assert check_alarms(GOOD, load_config([])) == []
    assert check_alarms(GOOD | {"loss/token_kl": 0.1}, load_config(KL)) == []
    assert check_alarms(GOOD | {"loss/token_kl": 7.0}, load_config([])) == []
    assert check_alarms(GOOD | {"rollout/staleness/max": 2.0}, load_config(["trainer.staleness=2"])) == []


def test_tokens_of_an_older_version_may_differ():
    old = GOOD | {"batch/first_logprob_diff": 0.5, "rollout/staleness/max": 1.0}
    assert check_alarms(old, load_config(["trainer.staleness=1"])) == []


def test_thresholds_come_from_the_config() -> None:
    loud = GOOD | {"batch/first_logprob_diff": 0.1}
    assert check_alarms(loud, load_config(["alarms.logprob_diff_warn=0.15"])) == []
    (alarm,) = check_alarms(loud, load_config(["alarms.logprob_diff_stop=0.05"]))
    assert alarm.is_fatal
