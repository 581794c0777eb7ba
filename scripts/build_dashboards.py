"""Write the Grafana dashboards of skyrl_nat/monitoring/assets from the tables below."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "skyrl_nat" / "monitoring" / "assets" / "grafana" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 7
"""Of a panel; a row is 24 wide."""
RUN = 'run=~"$run"'
INSTANCE = 'instance=~"$instance"'
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    queries: tuple[tuple[str, str], ...]
    """PromQL and legend."""
    unit: str = "short"
    """Of Grafana's."""
    kind: str = "timeseries"
    help: str = ""


def metric(name: str, *labels: str, scope: str = RUN) -> str:
    """Return a selector of one metric."""
    return f"skyrl_nat_{name}{{{','.join([scope, *labels])}}}"


def rate(name: str, by: str, *labels: str, scope: str = RUN) -> str:
    """Return the rate of a counter."""
    return f"sum by ({by}) (rate({metric(name, *labels, scope=scope)}[$__rate_interval]))"


def plain(*names: str, legend: str = "{{run}}") -> tuple[tuple[str, str], ...]:
    """Return metrics as they are, with their names in the legend if there are several."""
    return tuple((metric(name), f"{legend} {name}" if len(names) > 1 else legend) for name in names)


def quantiles(name: str, by: str = "run", *, scope: str = RUN) -> tuple[tuple[str, str], ...]:
    """Return percentiles of a histogram."""
    buckets = rate(f"{name}_bucket", f"{by}, le", scope=scope)
    return tuple((f"histogram_quantile({q}, {buckets})", f"{{{{{by}}}}} p{round(100 * q)}") for q in QUANTILES)


def success(kind: str) -> tuple[str, str]:
    """Return the share of rollouts that succeeded."""
    label = f'kind="{kind}"'
    share = f"{rate('successes_total', 'run', label)} / {rate('judged_total', 'run', label)}"
    return share, f"{{{{run}}}} {kind}"


TRAINING = (
    Panel(title="Step", queries=plain("step"), kind="stat"),
    Panel(title="Steps of the run", queries=plain("planned_steps"), kind="stat"),
    Panel(
        title="Silence against its limit",
        queries=plain("progress_silent_seconds", "progress_limit_seconds"),
        unit="s",
        help="The watchdog acts where both meet.",
    ),
    Panel(title="Reward", queries=plain("rollout_reward_mean", "rollout_reward_std", "rollout_reward_max")),
    Panel(title="Success rate", queries=(success("train"), success("eval")), unit="percentunit"),
    Panel(
        title="Success of the step and of held-out tasks",
        queries=plain("rollout_success_mean", "eval_rollout_success_mean"),
        unit="percentunit",
    ),
    Panel(title="Loss", queries=plain("loss_policy", "loss_whole")),
    Panel(title="Gradient norm", queries=plain("loss_grad_norm")),
    Panel(
        title="KL to the reference", queries=plain("loss_token_kl"), help="Nats per token; absent without a KL term."
    ),
    Panel(
        title="Engines against trainer", queries=plain("batch_first_logprob_diff"), help="Mean difference of log-probs."
    ),
    Panel(title="Entropy", queries=plain("loss_token_entropy"), help="Nats per token."),
    Panel(title="Clipped", queries=plain("loss_clip_fraction"), unit="percentunit"),
    Panel(title="Staleness", queries=plain("rollout_staleness_mean", "rollout_staleness_max")),
    Panel(title="Groups that teach something", queries=plain("batch_signal_groups_share"), unit="percentunit"),
    Panel(title="Alarms and numbers that are not finite", queries=plain("alarm_number", "metrics_not_finite")),
    Panel(
        title="Where a step's time goes",
        queries=plain("time_step_seconds", "time_rollout_seconds", "time_train_seconds", "time_push_seconds"),
        unit="s",
    ),
    Panel(
        title="Where the GPU seconds go",
        queries=plain(*(f"gpu_{part}_share" for part in ("rollout", "train", "push", "offload", "idle"))),
        unit="percentunit",
    ),
    Panel(title="Idle, by GPU", queries=plain("one_gpu_idle_share", legend="{{run}} {{gpu}}"), unit="percentunit"),
    Panel(
        title="Tokens per GPU second",
        queries=plain("throughput_engine_tokens_per_gpu_second", "throughput_trained_tokens_per_gpu_second"),
    ),
    Panel(title="MFU", queries=plain("train_mfu", "step_mfu"), unit="percentunit", help="On listed GPUs alone."),
    Panel(title="Phase", queries=((f"{metric('phase')} == 1", "{{run}} {{phase}}"),), kind="state-timeline"),
    Panel(title="Disk left", queries=plain("disk_free_bytes", "disk_size_bytes"), unit="bytes"),
    Panel(title="Memory left", queries=plain("memory_available_bytes", "memory_size_bytes"), unit="bytes"),
    Panel(
        title="CPUs in use",
        queries=((rate("cpu_busy_seconds_total", "run"), "{{run}}"), (metric("cpus"), "{{run}} of")),
    ),
)
ENGINES = (
    Panel(title="Workers that answer", queries=plain("workers_alive", "workers", legend="{{run}} {{role}}")),
    Panel(title="Requests in flight", queries=plain("engine_requests", legend="{{run}} engine {{engine}}")),
    Panel(
        title="Longest wait for an answer", queries=plain("wait_longest_seconds", legend="{{run}} {{role}}"), unit="s"
    ),
    Panel(title="Latency of an engine", queries=quantiles("generate_seconds"), unit="s"),
    Panel(title="Latency of a turn", queries=quantiles("turn_seconds"), unit="s"),
    Panel(title="Latency of a rollout", queries=quantiles("rollout_seconds"), unit="s"),
    Panel(title="Latency of environments", queries=quantiles("environment_seconds", "call"), unit="s"),
    Panel(
        title="Calls that gave nothing",
        queries=((rate("call_failures_total", "run, call"), "{{run}} {{call}}"),),
        unit="ops",
    ),
    Panel(
        title="Rollouts by outcome",
        queries=((rate("rollouts_total", "run, outcome"), "{{run}} {{outcome}}"),),
        unit="ops",
    ),
    Panel(title="Rollouts under way", queries=plain("rollouts_playing", "rollouts_scoring")),
    Panel(title="Groups ahead of the trainer", queries=plain("groups_playing", "groups_ready")),
    Panel(
        title="Lost groups and tasks",
        queries=plain("rollout_dropped_groups_number", "rollout_stale_groups_number", "tasks_quarantined"),
    ),
    Panel(title="Turns of a rollout", queries=plain("rollout_turns_mean")),
    Panel(title="Tokens of a rollout", queries=plain("rollout_completion_tokens_mean", "rollout_total_tokens_mean")),
    Panel(title="Turns cut by the token limit", queries=plain("rollout_length_finish_mean"), unit="percentunit"),
    Panel(title="Policy version in the engines", queries=plain("policy_version", "step")),
    Panel(title="Engines started anew", queries=plain("engine_restarts_total")),
    Panel(title="Weights pushed", queries=plain("weights_pushed_bytes"), unit="bytes"),
)
VALIDATORS = (
    Panel(
        title="Validators that answer",
        queries=tuple((metric(name, 'role="reward"'), f"{{{{run}}}} {name}") for name in ("workers_alive", "workers")),
    ),
    Panel(title="Rollouts that wait for a verdict", queries=plain("rollouts_scoring")),
    Panel(title="Verdicts per second", queries=((rate("judged_total", "run, kind"), "{{run}} {{kind}}"),), unit="ops"),
    Panel(title="Latency of a verdict", queries=quantiles("validator_seconds"), unit="s"),
    Panel(
        title="Seconds that a group waits for its last verdict",
        queries=plain("rollout_score_mean_seconds", "rollout_score_max_seconds"),
        unit="s",
    ),
    Panel(
        title="No verdict",
        queries=((rate("call_failures_total", "run", 'call="score"'), "{{run}}"),),
        unit="ops",
        help="Calls of a validator that failed; each is tried again.",
    ),
    Panel(
        title="Rollouts lost to validators",
        queries=plain("rollout_validator_failure_number", "rollout_screened_number"),
    ),
    Panel(title="Success rate", queries=(success("train"), success("eval")), unit="percentunit"),
    Panel(
        title="Parts of the reward",
        queries=((f'{{__name__=~"skyrl_nat_reward_.+_mean",{RUN}}}', "{{run}} {{__name__}}"),),
    ),
    Panel(title="Suspected of cheating", queries=plain("reward_suspected_mean"), unit="percentunit"),
    Panel(title="Groups without spread", queries=plain("rollout_zero_spread_groups_mean"), unit="percentunit"),
    Panel(
        title="Longest wait for a validator",
        queries=((metric("wait_longest_seconds", 'role="reward"'), "{{run}}"),),
        unit="s",
    ),
)


def deployed(name: str) -> str:
    """Return the selector of a deployment's metric."""
    return metric(f"deploy_{name}", scope=INSTANCE)


def deployed_rate(name: str, by: str, *labels: str) -> str:
    """Return the rate of a deployment's counter."""
    return rate(f"deploy_{name}", by, *labels, scope=INSTANCE)


PASSED = deployed_rate("verdicts_total", "instance", 'verdict="passed"')
DEPLOYMENT = (
    Panel(
        title="Requests by outcome", queries=((deployed_rate("requests_total", "outcome"), "{{outcome}}"),), unit="ops"
    ),
    Panel(title="Requests under way", queries=((deployed("in_flight"), "{{instance}}"),)),
    Panel(
        title="Success rate",
        queries=((f"{PASSED} / {deployed_rate('verdicts_total', 'instance')}", "{{instance}}"),),
        unit="percentunit",
        help="Verdicts of the validator on what was answered.",
    ),
    Panel(title="Latency", queries=quantiles("deploy_request_seconds", "instance", scope=INSTANCE), unit="s"),
    Panel(title="Latency by phase", queries=quantiles("deploy_phase_seconds", "phase", scope=INSTANCE), unit="s"),
    Panel(
        title="Answers of the baseline",
        queries=((deployed_rate("fallbacks_total", "reason"), "{{reason}}"),),
        unit="ops",
    ),
    Panel(
        title="Feedback of a day",
        queries=((f"sum by (rating) (increase({deployed('feedback_total')}[1d]))", "{{rating}}"),),
    ),
    Panel(title="Memory", queries=((deployed("process_resident_memory_bytes"), "{{instance}}"),), unit="bytes"),
    Panel(title="CPUs in use", queries=((deployed_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),)),
)
DASHBOARDS = {
    "training": ("Training", TRAINING, "run", "skyrl_nat_disk_size_bytes"),
    "engines_and_environments": ("Engines and environments", ENGINES, "run", "skyrl_nat_disk_size_bytes"),
    "validators": ("Validators", VALIDATORS, "run", "skyrl_nat_disk_size_bytes"),
    "deployment": ("Deployment", DEPLOYMENT, "instance", "skyrl_nat_deploy_in_flight"),
}
"""File -> title, panels, and the label that is chosen at the top with a metric that has it."""


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    title, panels, label, source = DASHBOARDS[name]
    return {
        "uid": f"skyrl-nat-{name.replace('_', '-')}",
        "title": f"SkyRL-NAT: {title}",
        "tags": ["skyrl-nat"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables(label, source)},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _variables(label: str, source: str) -> list[dict[str, Any]]:
    query = f"label_values({source}, {label})"
    return [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": "A"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    per_row = 24 // WIDTH
    place = {"h": HEIGHT, "w": WIDTH, "x": number % per_row * WIDTH, "y": number // per_row * HEIGHT}
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": SOURCE}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def text_of(name: str) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(dashboard(name), indent=1) + "\n"


def main() -> int:
    """Write all dashboards."""
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
