"""The commands that say what is better: compare, analyze and ablate; imports late."""

import argparse
import sys
from pathlib import Path
from typing import Any

from skyrl_nat.errors import ConfigError, SkyRLNatError


def add_commands(commands: Any) -> None:
    """Add `compare`, `analyze` and `ablate` to the subparsers of `skyrl-nat`."""
    compare = commands.add_parser("compare", help="is B better than A? paired tests on the same tasks, as a page")
    compare.add_argument("before", help="A: folder of an evaluation, or of a run (RUN@STEP for one of its steps)")
    compare.add_argument("after", help="B: the same")
    compare.add_argument("--label", default="greedy", choices=("greedy", "sampled"), help="which rollouts of a folder")
    compare.add_argument("--alpha", type=float, default=0.05, help="two-sided level of the tests")
    compare.add_argument("--seed", type=int, default=0, help="of the bootstrap's draws")
    compare.add_argument("--reward-test", default="signed_rank", choices=("signed_rank", "paired_t"))
    compare.add_argument("--out", type=Path, help="folder of the page; default: comparison-A-B/ beside B")
    compare.set_defaults(function=_compare, goes_on="the same command")
    analyze = commands.add_parser("analyze", help="say what a run teaches: findings, failures, curves, as a page")
    analyze.add_argument("run", type=Path, help="run folder")
    analyze.add_argument("--out", type=Path, help="folder of the page; default: analysis/ in the run folder")
    analyze.set_defaults(function=_analyze, goes_on="the same command")
    ablate = commands.add_parser("ablate", help="train variants of a config with several seeds and compare them")
    ablate.add_argument(
        "folder", type=Path, metavar="FOLDER", help="to make; an ablation that was stopped goes on in it"
    )
    what = ablate.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--vary", action="append", metavar="KEY=A,B", help="values, the baseline's first; may be repeated"
    )
    what.add_argument("--variants", type=Path, metavar="FILE", help="YAML: name -> list of overrides, baseline first")
    ablate.add_argument("--one-at-a-time", action="store_true", help="vary one key at a time, not all combinations")
    ablate.add_argument("--seeds", default="0", help="of each variant, e.g. 0,1,2")
    ablate.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="runs beside each other, each with one GPU where there are any",
    )
    ablate.add_argument("--threshold", type=float, default=0.5, help="success for which needed rollouts are counted")
    ablate.add_argument("overrides", nargs="*", help="of all runs, as for train")
    ablate.set_defaults(function=_ablate, goes_on="the same command")


def _compare(options: argparse.Namespace) -> None:
    from skyrl_nat.evaluation.comparison import compare
    from skyrl_nat.evaluation.comparison_report import write_comparison
    from skyrl_nat.evaluation.measures import ComparisonSettings, RewardTest
    from skyrl_nat.evaluation.sources import differences, read_source

    settings = ComparisonSettings(alpha=options.alpha, seed=options.seed, reward_test=RewardTest(options.reward_test))
    before, after = (read_source(text, options.label) for text in (options.before, options.after))
    found = compare(before.groups, after.groups, settings=settings)
    paths = write_comparison(found, before, after, options.out or after.page_folder(before))
    for line in [*differences(before, after), found.verdict.sentence]:
        print(line)
    print(paths[-1])


def _analyze(options: argparse.Namespace) -> None:
    from skyrl_nat.evaluation.analysis.analyze import NAME, analyze, write_analysis

    analysis = analyze(options.run)
    paths = write_analysis(analysis, options.out or options.run / NAME)
    for line in [*analysis.material.record.notes, *(f"{each.severity}: {each.sentence}" for each in analysis.findings)]:
        print(line)
    print(paths[-1])


def _ablate(options: argparse.Namespace) -> None:
    from skyrl_nat.evaluation.ablation.page import failure, sentences, write_ablation
    from skyrl_nat.evaluation.ablation.results import read_results
    from skyrl_nat.evaluation.ablation.running import PROGRAM, Processes, opened
    from skyrl_nat.evaluation.ablation.sweep import check_configs, make_sweep, read_variants, varied

    if not 0 <= options.threshold <= 1:
        raise ConfigError(f"--threshold must be a share in [0, 1], got {options.threshold}. Use for instance 0.5")
    if options.at_once < 1:
        raise ConfigError(f"--at-once must be >= 1, got {options.at_once}. Leave it out for one after the other")
    if options.variants and options.one_at_a_time:
        raise ConfigError("--one-at-a-time must come with --vary, got it with --variants. Leave it out")
    variants = (
        read_variants(options.variants)
        if options.variants
        else varied(options.vary, is_one_at_a_time=options.one_at_a_time)
    )
    sweep = make_sweep(variants, _seeds(options.seeds), options.overrides)
    root = options.folder.resolve()
    unlike = check_configs(sweep, root)
    with opened(root, sweep) as lock:
        failed = Processes(root, lock, _say, PROGRAM, num_at_once=options.at_once).play(sweep.runs(root))
        found = read_results(
            sweep, root, failed=[each.run for each in failed], threshold=options.threshold, unlike=unlike
        )
        paths = write_ablation(found, sweep.to_dict(), failed, root)
    for line in [*found.notes, *sentences(found), *map(failure, failed)]:
        print(line)
    print(paths[-1])
    if failed:
        raise SkyRLNatError(
            f"All {len(sweep.runs(root))} runs must end well, {len(failed)} did not. See the logs in {root}; the same "
            "command trains only those again"
        )


def _seeds(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds must be numbers with commas between them, got {text!r}. Write 0,1,2") from None


def _say(text: str) -> None:
    print(f"ablate: {text}", file=sys.stderr, flush=True)
