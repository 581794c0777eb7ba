"""The commands of `skyrl-nat`: parsing, exit codes and one-sentence errors; imports late."""

import argparse
import asyncio
import contextlib
import errno
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.controller.stop_signals import EXIT_INTERRUPTED, leave, run_until_stopped
from skyrl_nat.data.traces.command_line import add_commands as add_trace_commands
from skyrl_nat.deploy.command_line import add_commands as add_deploy_commands
from skyrl_nat.doctor.command_line import add_commands as add_doctor_commands
from skyrl_nat.errors import ConfigError, DataError, SkyRLNatError, StoppedError
from skyrl_nat.evaluation.command_line import add_commands as add_evaluation_commands
from skyrl_nat.export.command_line import add_commands as add_export_commands
from skyrl_nat.json_lines import with_reasons
from skyrl_nat.monitoring.command_line import add_commands as add_monitoring_commands
from skyrl_nat.planning.command_line import add_commands as add_planning_commands
from skyrl_nat.service.command_line import add_commands as add_service_commands

if TYPE_CHECKING:
    from skyrl_nat.config.run import RunConfig
    from skyrl_nat.controller.replay import Recording
    from skyrl_nat.controller.subject import Subject

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parse(arguments)
    try:
        options.function(options)
    except (ConfigError, DataError) as error:
        return _say(error, EXIT_BAD_INPUT)
    except StoppedError as error:
        return _say(error, EXIT_STOPPED)
    except SkyRLNatError as error:
        return _say(error, EXIT_FAILED)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        print(
            f"skyrl-nat: The folder must take what is written, but: {error}. Free space, then go on with "
            f"{options.goes_on}",
            file=sys.stderr,
        )
        return EXIT_FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"skyrl-nat: stopped. Go on with {options.goes_on}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; overrides may stand anywhere, which argparse allows only before the first option."""
    parser = command_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "overrides") or any(text.startswith("-") for text in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides += rest
    return options


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="skyrl-nat", description="Train agents that write NAT agents, with GRPO.")
    parser.set_defaults(goes_on="resume=latest")
    commands = parser.add_subparsers(required=True, metavar="command")
    train = commands.add_parser("train", help="train; takes Hydra overrides, e.g. experiment=smoke_cpu trainer.steps=3")
    train.add_argument("overrides", nargs="*", help="key=value, see conf/train.yaml")
    train.set_defaults(function=_train)
    add_doctor_commands(commands)
    _add_evaluate(commands)
    add_export_commands(commands)
    replay = commands.add_parser(
        "replay", help="train a step again from its recorded rollouts and compare every figure"
    )
    replay.add_argument("run", type=Path, help="run folder; nothing is written into it")
    replay.add_argument("--step", type=int, required=True, help="one that the run has trained")
    replay.add_argument(
        "overrides", nargs="*", help="config overrides, e.g. model.path=FOLDER where the model has moved"
    )
    replay.set_defaults(function=_replay, goes_on="the same command")
    _add_prepare(commands)
    submit = commands.add_parser("submit", help="train as a job of a Ray cluster: upload this folder's code, no data")
    submit.add_argument("--address", default="http://127.0.0.1:8265", help="of the cluster's dashboard")
    submit.add_argument("--no-wait", action="store_true", help="end when the job has begun, not when it is over")
    submit.add_argument("overrides", nargs="*", help="as for train")
    submit.set_defaults(function=_submit)
    add_planning_commands(commands)
    add_trace_commands(commands)
    add_evaluation_commands(commands)
    add_monitoring_commands(commands)
    add_deploy_commands(commands)
    add_service_commands(commands)
    return parser


def _add_prepare(commands: Any) -> None:
    prepare = commands.add_parser("prepare", help="make a data set of tasks with hidden tests; no API needed")
    prepare.add_argument("output_dir", type=Path, help="folder to make; a run that was killed goes on in it")
    prepare.add_argument("--num-samples", type=int, default=1000, help="tasks in all; a tenth is held out")
    prepare.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes")
    prepare.add_argument("--mix", default="1:25,2:25,3:25,4:15,5:10", help="difficulty:share, e.g. 1:0.5,2:0.3,3:0.2")
    prepare.add_argument(
        "--hold-out",
        default="families",
        choices=("families", "variants", "both"),
        help="what no training task has: whole families of the library (default), variants of every template, or both",
    )
    prepare.add_argument(
        "--tasks-per-function",
        type=int,
        default=1,
        help="how often the training set may ask for the same functions, in other words and with other examples",
    )
    prepare.add_argument("--workers", type=int, default=0, help="tasks made at once; default: one per core")
    prepare.add_argument("--form", default="one_shot", choices=("one_shot", "multi_turn"), help="of the episodes")
    prepare.add_argument(
        "--planner", action="store_true", help="let an LLM write the tasks, see planner.* in the config"
    )
    prepare.add_argument("--requests", type=Path, help="what users want, one request a line; default: those shipped")
    prepare.add_argument("overrides", nargs="*", help="config overrides, e.g. environment.sandbox.backend=landlock")
    prepare.set_defaults(function=_prepare, goes_on="the same command")


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="play the held-out tasks with a run, a checkpoint or a model")
    evaluate.add_argument("subject", help="folder of a run, a checkpoint, a model or a LoRA adapter, or a model's name")
    evaluate.add_argument(
        "--checkpoint", default="latest", help="of a run: folder or URL of one, best or latest; default: the newest"
    )
    evaluate.add_argument("--samples", type=int, default=0, help="rollouts per task besides the greedy one, for pass@k")
    evaluate.add_argument("--out", type=Path, help="folder to make; an evaluation that was stopped goes on in it")
    evaluate.add_argument("overrides", nargs="*", help="config overrides, e.g. evaluation.num_tasks=8")
    evaluate.set_defaults(function=_evaluate, goes_on="the same command")


def _train(options: argparse.Namespace) -> None:
    from skyrl_nat.config.load import load_config
    from skyrl_nat.controller.opening import finished_step

    config = resolve_name(load_config(options.overrides))
    step = finished_step(config)
    if step is not None:
        print(f"{config.run_dir} is already finished: step {step} was its last. Raise trainer.steps or trainer.epochs")
        return
    run_until_stopped(_train_run(config), config.recovery.grace_s)


async def _train_run(config: "RunConfig") -> None:
    from skyrl_nat.controller.opening import open_run
    from skyrl_nat.controller.summary import show_best, show_summary
    from skyrl_nat.controller.supervision import train_to_the_end

    started = time.monotonic()
    async with open_run(config) as run:
        try:
            await train_to_the_end(run)
        except BaseException:
            # A terminal or disk that is gone must not hide how the run ended.
            with contextlib.suppress(OSError, ValueError):
                show_best(run)
            raise
    show_summary(run, time.monotonic() - started)


def _submit(options: argparse.Namespace) -> None:
    from skyrl_nat.cluster.jobs import submit

    sys.exit(submit(options.address, options.overrides, is_waiting=not options.no_wait))


def _evaluate(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.subject import opened
    from skyrl_nat.evaluation.folder import require_free

    if options.samples < 0:
        raise ConfigError(f"--samples must be 0 or more, got {options.samples}. Leave it out for greedy play alone")
    if options.out is not None:
        require_free(options.out)
    with opened(options.subject, options.checkpoint, options.overrides) as subject:
        run_until_stopped(_evaluate_subject(subject, options.samples, options.out), subject.config.recovery.grace_s)


async def _evaluate_subject(subject: "Subject", num_samples: int, out: Path | None) -> None:
    from skyrl_nat.checkpoint.manager import CheckpointManager
    from skyrl_nat.controller.evaluate import evaluate, sample
    from skyrl_nat.controller.opening import open_run
    from skyrl_nat.controller.supervision import supervised
    from skyrl_nat.evaluation.folder import EvaluationFolder
    from skyrl_nat.evaluation.model_report import write_report

    async with open_run(subject.config, is_training=False, fetched=CheckpointManager(subject.scratch)) as run:
        about = subject.about(run, num_samples)
        folder = EvaluationFolder(out or subject.folder(about), about)
        if subject.is_run:
            await run.push_weights()
        result = await supervised(run, evaluate(run, folder))
        if num_samples:
            await supervised(run, sample(run, folder, num_samples))
    pages = write_report(folder.path)
    print(json.dumps(with_reasons(result.to_dict()), indent=1))
    print(f"skyrl-nat: everything is in {folder.path}; look at {pages[-1]}", file=sys.stderr)


def _replay(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.replay import Recording

    recording = Recording(options.run, options.overrides)
    run_until_stopped(_replay_run(recording, options.step), recording.config.recovery.grace_s)


async def _replay_run(recording: "Recording", step: int) -> None:
    from skyrl_nat.controller.replay import replay, show_figures
    from skyrl_nat.monitoring.console import ConsoleBackend

    with ConsoleBackend() as console:
        figures = await replay(recording, step, console)
    show_figures(figures, console)


def _prepare(options: argparse.Namespace) -> None:
    import logging

    from skyrl_nat.config.environment import Form
    from skyrl_nat.config.load import load_config
    from skyrl_nat.data.prepare import PrepareOptions, parse_mix, prepare
    from skyrl_nat.data.synthesis.library import HoldOut

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = PrepareOptions(
        output_dir=options.output_dir,
        num_samples=options.num_samples,
        seed=options.seed,
        num_workers=options.workers,
        form=Form(options.form),
        mix=parse_mix(options.mix),
        hold_out=HoldOut(options.hold_out),
        tasks_per_function=options.tasks_per_function,
        has_planner=options.planner,
        requests=options.requests,
    )
    print(json.dumps(prepare(chosen, load_config(options.overrides)), indent=1))


def resolve_name(config: "RunConfig") -> "RunConfig":
    """Give a run called `auto` its name: a new one, or with `resume=latest` or `best` the newest run that can go on."""
    if config.name != "auto":
        return config
    root = Path(config.root_dir).expanduser()
    if config.resume in ("latest", "best"):
        manifests = sorted(root.glob("*/checkpoints/step_*/manifest.json"), key=lambda path: path.stat().st_mtime)
        if not manifests:
            raise ConfigError(
                f"resume={config.resume} must find a run with a checkpoint in {root}, found none. "
                "Start afresh with resume=never"
            )
        config.name = manifests[-1].parents[2].name
    else:
        config.name = f"{re.sub('[^a-z0-9_]+', '-', config.environment.family)}-{time.strftime('%Y%m%d-%H%M%S')}"
    return config


def _say(error: SkyRLNatError, code: int) -> int:
    print(f"skyrl-nat: {error}", file=sys.stderr)
    return code


def program() -> None:
    """`main` as a whole process."""
    leave(main())


if __name__ == "__main__":
    program()
