"""The commands that look ahead: hardware and plan; imports late, and never torch."""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.errors import ConfigError, DataError

if TYPE_CHECKING:
    from skyrl_nat.config.run import RunConfig
    from skyrl_nat.planning.plan import Setting
    from skyrl_nat.planning.rates import Machine

CARDS = ("h100", "h200", "a100-80", "a100-40")


def add_commands(commands: Any) -> None:
    """Add `hardware` and `plan` to the subparsers of `skyrl-nat`."""
    hardware = commands.add_parser("hardware", help="say what this machine has, and which profile fits it")
    hardware.add_argument("--profile", default="auto", help="cpu_only, gpu, workstation, h100x8 or auto")
    how = hardware.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="everything as JSON")
    how.add_argument(
        "--overrides", dest="has_overrides_alone", action="store_true", help="the profile's overrides alone, one a line"
    )
    hardware.set_defaults(function=_hardware, goes_on="the same command")
    plan = commands.add_parser("plan", help="batch words, memory, seconds and cost of a config; starts nothing")
    plan.add_argument("overrides", nargs="*", help="as for train")
    plan.add_argument("--json", action="store_true", help="everything as JSON, the resolved config too")
    plan.add_argument("--card", choices=CARDS, help="what the GPUs are; default: this machine's, else h100")
    plan.add_argument("--mean-tokens", type=float, help="that a rollout samples; default: half of what it may")
    plan.add_argument("--spread", type=float, default=0.5, help="of the lengths' logarithm; 0 makes all alike")
    plan.add_argument("--price", type=float, help="of one GPU for an hour; default: a round figure of the card")
    plan.add_argument("--seed", type=int, default=0, help="of the simulation")
    plan.add_argument("--sweep", action="store_true", help="compare cluster shapes in place of planning one")
    plan.add_argument("--max-gpus", type=int, default=1024, help="of a sweep")
    plan.add_argument("--scale-batch", action="store_true", help="let a sweep's batches grow with the GPUs")
    plan.add_argument("--plot", type=Path, metavar="FILE", help="picture of a sweep: .svg, .png or .pdf")
    plan.set_defaults(function=_plan, goes_on="the same command")


def _hardware(options: argparse.Namespace) -> None:
    from skyrl_nat.planning.hardware import look
    from skyrl_nat.planning.profiles import overrides_of, resolve

    found = look()
    profile = resolve(options.profile, found)
    overrides = overrides_of(profile, found)
    if options.has_overrides_alone:
        print("\n".join(overrides))
        return
    if options.json:
        chosen = {"name": profile.name, "model": profile.model, "reason": profile.reason, "overrides": overrides}
        print(json.dumps({"hardware": found.to_dict(), "profile": chosen}, indent=1))
        return
    from skyrl_nat.planning.report import hardware_table

    print(hardware_table(found))
    print(f"profile {profile.name}: {profile.model}. {profile.reason}")
    print(f"skyrl-nat train {shlex.join(overrides)}")


def _plan(options: argparse.Namespace) -> None:
    from skyrl_nat.config.cluster import Device
    from skyrl_nat.config.load import load_config
    from skyrl_nat.planning.model_shape import find_decoder
    from skyrl_nat.planning.plan import Setting
    from skyrl_nat.planning.workload import guess_workload

    _check(options)
    config = load_config(options.overrides)
    work = guess_workload(config, mean_tokens=options.mean_tokens, spread=options.spread)
    is_gpu = config.cluster.device is Device.cuda
    setting = Setting(
        decoder=find_decoder(config.model.path),
        machine=_machine(options.card, is_gpu=is_gpu),
        workload=work,
        seed=options.seed,
    )
    if options.sweep:
        _sweep(options, config, setting)
    else:
        _plan_one(options, config, setting)


def _plan_one(options: argparse.Namespace, config: "RunConfig", setting: "Setting") -> None:
    from skyrl_nat.planning.plan import estimate, num_gpus, to_dict
    from skyrl_nat.planning.recommend import layouts
    from skyrl_nat.planning.refusals import check

    num_tasks = _num_tasks(config)
    found = estimate(config, setting)
    check(config, setting.decoder, setting.machine, num_micro_batches=found.num_micro_batches)
    plan = to_dict(config, setting, found, num_tasks=num_tasks, price=_price(options, setting.machine))
    best = layouts(config, setting, num_gpus(config)) if num_gpus(config) else []
    notes = _notes(options, config, setting)
    if options.json:
        recommended = [{"overrides": each.overrides, "step_s": each.estimate.seconds.step} for each in best]
        print(json.dumps({**plan, "recommended": recommended, "notes": notes}, indent=1))
        return
    from skyrl_nat.planning.report import plan_table

    print(plan_table(plan, best, notes))


def _sweep(options: argparse.Namespace, config: "RunConfig", setting: "Setting") -> None:
    from skyrl_nat.config.cluster import Device
    from skyrl_nat.planning.sweep import sweep

    if config.cluster.device is Device.cpu:
        raise ConfigError("cluster.device must be cuda to compare numbers of GPUs, got cpu. Add cluster=h100x8")
    price = _price(options, setting.machine)
    rows = sweep(config, setting, most=options.max_gpus, price=price, is_batch_scaled=options.scale_batch)
    if options.plot:
        from skyrl_nat.planning.plot import write_plot

        write_plot(rows, options.plot)
    if options.json:
        print(json.dumps([row.to_dict() for row in rows], indent=1))
        return
    from skyrl_nat.planning.report import sweep_table

    print(sweep_table(rows))
    print(
        f"S: staleness. GiB: peak of the fullest GPU. waits: share of a step in which the policy waits. failures: in a "
        f"month. cost: of 1,000 rollouts, at {price:g} an hour and GPU"
    )


def _check(options: argparse.Namespace) -> None:
    for name, value in (("--mean-tokens", options.mean_tokens), ("--max-gpus", options.max_gpus)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be >= 1, got {value:g}. Leave it out for its default")
    if options.max_gpus > 1024:
        raise ConfigError(f"--max-gpus must be <= 1024, got {options.max_gpus}. Leave it out for its default")
    if not 0 <= options.spread <= 3:
        raise ConfigError(f"--spread must be in [0, 3], got {options.spread:g}. Usual values are 0.3 to 1")
    if options.price is not None and options.price < 0:
        raise ConfigError(f"--price must be >= 0, got {options.price:g}. Leave it out for its default")
    if options.plot and (not options.sweep or options.plot.suffix not in (".svg", ".png", ".pdf")):
        raise ConfigError(
            f"--plot must come with --sweep and end in .svg, .png or .pdf, got {options.plot}. Correct it"
        )


def _machine(card: str | None, *, is_gpu: bool) -> "Machine":
    """Return what the GPUs are, or this machine where the config wants none."""
    from skyrl_nat.planning.hardware import cpu_machine, look
    from skyrl_nat.planning.rates import machine_of

    if card and is_gpu:
        return machine_of(card)
    found = look()
    if not is_gpu:
        return cpu_machine(found.cpu, found.memory_gib)
    return found.machine if found.machine.is_gpu else machine_of("h100")


def _price(options: argparse.Namespace, machine: "Machine") -> float:
    from skyrl_nat.planning.rates import USUAL_PRICES

    return USUAL_PRICES.get(machine.name, 0.0) if options.price is None else options.price


def _num_tasks(config: "RunConfig") -> int:
    """Return the tasks that a run would learn from.

    Raises:
        DataError: They do not give one step, or the files are at fault.
    """
    from skyrl_nat.data.specs import load_tasks, open_tasks
    from skyrl_nat.data.task_source import check_disjoint

    environment = config.environment
    filters: dict[str, Any] = {"family": environment.family, "max_difficulty": environment.max_difficulty}
    held_out = load_tasks(environment.validation_files, **filters)
    if environment.recorded_files:
        from skyrl_nat.rollouts.recorded import count_groups

        number = count_groups([Path(name) for name in environment.recorded_files])
    else:
        train = open_tasks(environment.train_files, **filters)
        check_disjoint(train, held_out)
        number = len(train)
    if config.total_steps(number) < 1:
        raise DataError(
            f"The training set must give at least one step of {config.trainer.tasks_per_step} tasks, got {number}. "
            "Add tasks, or lower trainer.tasks_per_step"
        )
    return number


def _notes(options: argparse.Namespace, config: "RunConfig", setting: "Setting") -> list[str]:
    """Return what the figures rest on."""
    notes = []
    if options.mean_tokens is None:
        notes.append(
            f"Lengths are guessed: {setting.workload.sampled_tokens:,.0f} sampled tokens a rollout. "
            "--mean-tokens says what a run's rollout/completion_tokens/mean was"
        )
    ranks = config.data_parallel_size
    rollouts = config.trainer.tasks_per_step * config.trainer.rollouts_per_task // config.trainer.updates_per_batch
    if rollouts < ranks:
        notes.append(f"{rollouts} rollouts an optimizer step leave {ranks - rollouts} of {ranks} ranks without work")
    return notes
