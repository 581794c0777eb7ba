"""The commands that look at what was played: compare and analyze; imports late."""

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    """Add `compare` and `analyze` to the subparsers of `skyrl-nat`."""
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
