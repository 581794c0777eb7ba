"""One rule names every metric in Prometheus, in base units."""

import pytest

from skyrl_nat.monitoring.prometheus_names import PrometheusName, prometheus_name


@pytest.mark.parametrize(
    ("metric", "name", "factor"),
    [
        ("rollout/reward/mean", "skyrl_nat_rollout_reward_mean", 1),
        ("loss/grad_norm", "skyrl_nat_loss_grad_norm", 1),
        ("time/step_s", "skyrl_nat_time_step_seconds", 1),
        ("rollout/generate_s/mean", "skyrl_nat_rollout_generate_mean_seconds", 1),
        ("gpu/idle_s/max", "skyrl_nat_gpu_idle_max_seconds", 1),
        ("rollout/validator_failure/count", "skyrl_nat_rollout_validator_failure_number", 1),
        ("loss/total", "skyrl_nat_loss_whole", 1),
        ("gpu/count", "skyrl_nat_gpu_number", 1),
        ("weights/pushed_mib", "skyrl_nat_weights_pushed_bytes", 2**20),
        ("offload/gib", "skyrl_nat_offload_bytes", 2**30),
        ("push/gb_per_s", "skyrl_nat_push_bytes_per_second", 1e9),
        ("throughput/engine_tokens_per_gpu_s", "skyrl_nat_throughput_engine_tokens_per_gpu_second", 1),
        ("eval/rollout/success/mean", "skyrl_nat_eval_rollout_success_mean", 1),
        ("environment/häl-t 2/mean", "skyrl_nat_environment_h_l_t_2_mean", 1),
    ],
)
def test_a_unit_becomes_a_base_unit_at_the_end_and_what_prometheus_has_no_sign_for_an_underscore(
    metric: str, name: str, factor: float
) -> None:
    assert prometheus_name(metric) == PrometheusName(name, factor)


def test_the_number_of_a_gpu_is_a_label_and_its_metric_is_apart_from_that_of_all() -> None:
    assert prometheus_name("gpu/3/idle/share") == PrometheusName("skyrl_nat_one_gpu_idle_share", 1, "3")
    assert prometheus_name("gpu/idle/share") == PrometheusName("skyrl_nat_gpu_idle_share", 1, "")
