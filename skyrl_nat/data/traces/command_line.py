"""The commands for recorded traces: collect, label, learn, export, report; imports late."""

import argparse
import json
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.errors import ConfigError, DataError

if TYPE_CHECKING:
    from skyrl_nat.data.traces.collected import Collected
    from skyrl_nat.data.traces.record import Trace
    from skyrl_nat.data.traces.rewards import TraceScorer

KINDS = ("nat", "openhands", "chat", "checkpoints")
"""What traces can be collected from."""
LABELS = "labels.jsonl"


def add_commands(commands: Any) -> None:
    """Add `label` and `traces` to the subparsers of `skyrl-nat`."""
    label = commands.add_parser("label", help="label recorded traces by hand, on a page of this machine")
    _add_store(label)
    label.add_argument("--learned", type=Path, help="a learned reward, for better suggestions")
    label.add_argument("--host", default="127.0.0.1", help="the page has no password")
    label.add_argument("--port", type=int, default=8390, help="0 takes any that is free")
    label.set_defaults(function=_label, goes_on="the same command")
    traces = commands.add_parser("traces", help="collect recorded traces, learn a reward of labels, export data sets")
    actions = traces.add_subparsers(required=True, metavar="action")
    collect = actions.add_parser("collect", help="add traces to a store, without secrets")
    collect.add_argument("traces", type=Path, help="folder of a trace store, made where it is not there")
    collect.add_argument(
        "paths", type=Path, nargs="+", help="files, oldest first; for openhands and checkpoints folders"
    )
    collect.add_argument("--from", dest="kind", choices=KINDS, required=True, help="who wrote them")
    collect.add_argument("--task", default="", help="the task that all of them worked on: they form one group")
    collect.set_defaults(function=_collect, goes_on="the same command")
    learn = actions.add_parser("learn", help="learn a reward of the manual labels, with its cross-validated quality")
    _add_store(learn)
    learn.add_argument("output", type=Path, help="file to write, JSON")
    learn.add_argument("--seed", type=int, default=0, help="of the folds")
    learn.set_defaults(function=_learn, goes_on="the same command")
    _add_export(actions.add_parser("export", help="write KTO examples or GRPO groups to train on"))
    report = actions.add_parser("report", help="print what a store holds")
    _add_store(report)
    report.add_argument("--json", action="store_true", help="instead of Markdown")
    report.set_defaults(function=_report, goes_on="the same command")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", type=Path, help="folder of a trace store")
    parser.add_argument("--labels", type=Path, help=f"where marks are kept; default: {LABELS} in that folder")


def _add_export(export: argparse.ArgumentParser) -> None:
    _add_store(export)
    export.add_argument("output", type=Path, help=".parquet, .jsonl, or a folder for a Hugging Face data set")
    export.add_argument("--as", dest="form", choices=("kto", "grpo"), required=True)
    export.add_argument("--learned", type=Path, help="a learned reward, for the part of that name")
    export.add_argument("--weights", default="", help="of the reward's parts, e.g. executes=0.5,efficiency=0")
    export.add_argument("--no-execution", action="store_true", help="do not run recorded code, not even in a sandbox")
    export.add_argument("--threshold", type=float, default=0.5, help="kto: from which reward on a trace is good")
    export.add_argument("--balance", default="down_sample", choices=("down_sample", "weights"), help="kto: of classes")
    export.add_argument("--seed", type=int, default=0, help="of what is drawn")
    export.add_argument("--first", type=date.fromisoformat, help="first day, YYYY-MM-DD")
    export.add_argument("--last", type=date.fromisoformat, help="last day")
    export.add_argument("overrides", nargs="*", help="config overrides, e.g. environment.sandbox.backend=landlock")
    export.set_defaults(function=_export, goes_on="the same command")


def _label(options: argparse.Namespace) -> None:
    from skyrl_nat.data.traces.auto_label import auto_label, review_order
    from skyrl_nat.data.traces.label_page import serve_labels
    from skyrl_nat.data.traces.learned import load_reward
    from skyrl_nat.data.traces.rewards import TraceRewardConfig, TraceScorer

    learned = load_reward(options.learned) if options.learned else None
    scorer = TraceScorer(TraceRewardConfig(), learned=learned)
    suggested = auto_label(_labelled(options).traces, scorer, learned)
    serve_labels(review_order(suggested.traces), _label_file(options), host=options.host, port=options.port)


def _collect(options: argparse.Namespace) -> None:
    from dataclasses import replace

    from skyrl_nat.data.traces.store import TraceStore

    collected = _read(options.kind, options.paths)
    traces = [replace(trace, task_id=trace.task_id or options.task) for trace in collected.traces]
    written = TraceStore(options.traces).append(traces)
    _print(
        {
            "traces": written.num_traces,
            "left_out": dict(collected.left_out),
            "not_written": written.faults,
            "secrets_taken_out": dict(written.secrets),
        }
    )


def _read(kind: str, paths: list[Path]) -> "Collected":
    if kind in ("nat", "chat"):
        from skyrl_nat.data.traces.chat_logs import read_chat_logs
        from skyrl_nat.data.traces.nat_steps import read_nat_steps

        return read_nat_steps(paths) if kind == "nat" else read_chat_logs(paths)
    if len(paths) > 1 or not paths[0].is_dir():
        raise DataError(f"--from {kind} must be given one folder, got {', '.join(map(str, paths))}. Name the folder")
    if kind == "openhands":
        from skyrl_nat.data.traces.openhands import read_conversations

        return read_conversations(paths[0])
    from skyrl_nat.data.traces.checkpoints import checkpoint_files, read_checkpoints

    return read_checkpoints(checkpoint_files(paths[0]))


def _learn(options: argparse.Namespace) -> None:
    from skyrl_nat.data.traces.labels import LabelFile
    from skyrl_nat.data.traces.learned import train_reward

    learned = train_reward(_labelled(options).traces, LabelFile(_label_file(options)).labels(), seed=options.seed)
    learned.save(options.output)
    _print(learned.quality.to_dict())


def _export(options: argparse.Namespace) -> None:
    from skyrl_nat.config.load import load_config
    from skyrl_nat.data.traces.datasets import GROUP_SCHEMA, KTO_SCHEMA, Balance, grpo_groups, kto_examples
    from skyrl_nat.data.traces.learned import load_reward
    from skyrl_nat.data.traces.rewards import TraceRewardConfig, TraceScorer
    from skyrl_nat.sandbox.profiles import open_sandbox

    config = TraceRewardConfig(weights=_parse_weights(options.weights))
    learned = load_reward(options.learned) if options.learned else None
    found = _labelled(options, first=options.first, last=options.last)
    sandbox = None if options.no_execution else open_sandbox(load_config(options.overrides).environment.sandbox)
    try:
        traces = _scored(found.traces, TraceScorer(config, sandbox=sandbox, learned=learned))
    finally:
        if sandbox is not None:
            sandbox.close()
    if options.form == "kto":
        examples = kto_examples(
            traces, threshold=options.threshold, balance=Balance(options.balance), seed=options.seed
        )
        rows, schema, account = examples.examples, KTO_SCHEMA, asdict(examples)
    else:
        groups = grpo_groups(traces)
        rows, schema, account = groups.groups, GROUP_SCHEMA, asdict(groups)
        account["num_equal_groups"] = len(groups.equal_groups)
    _write(rows, options.output, schema)
    _print({"rows": len(rows), **{key: value for key, value in account.items() if not isinstance(value, list)}})


def _scored(traces: "list[Trace]", scorer: "TraceScorer") -> "list[Trace]":
    from rich.console import Console
    from rich.progress import track

    return [scorer.apply(trace) for trace in track(traces, "traces", console=Console(stderr=True))]


def _write(rows: list[dict[str, Any]], path: Path, schema: Any) -> None:
    from skyrl_nat.data.traces.dataset_files import to_hf_dataset, write_rows

    if not rows:
        raise DataError(f"A data set must have a row, there is none for {path}. Collect more traces of one task")
    if path.suffix:
        write_rows(rows, path, schema)
    else:
        to_hf_dataset(rows, schema).save_to_disk(path)


def _report(options: argparse.Namespace) -> None:
    from skyrl_nat.data.traces.trace_report import report_json, report_markdown, trace_report

    found = _labelled(options)
    report = trace_report(found.traces, left_out=found.left_out)
    print(report_json(report) if options.json else report_markdown(report), end="")


def _labelled(options: argparse.Namespace, *, first: date | None = None, last: date | None = None) -> "Collected":
    """Return the traces of the store with their manual labels."""
    from skyrl_nat.data.traces.labels import LabelFile, apply_labels
    from skyrl_nat.data.traces.store import TraceStore

    found = TraceStore(options.traces).read(first, last)
    found.traces = apply_labels(found.traces, LabelFile(_label_file(options)).labels())
    return found


def _label_file(options: argparse.Namespace) -> Path:
    return options.labels or options.traces / LABELS


def _parse_weights(text: str) -> dict[str, float]:
    try:
        pairs = [part.split("=") for part in text.split(",") if part]
        return {name.strip(): float(weight) for name, weight in pairs}
    except ValueError as error:
        raise ConfigError(f"weights must be written as executes=0.5,efficiency=0, got {text!r}. Mend it") from error


def _print(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))
