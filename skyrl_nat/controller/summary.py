"""The table at the end of a run: what was learned, and where everything lies."""

from skyrl_nat.checkpoint.manager import by_reward, step_of
from skyrl_nat.controller.run import Run


def show_summary(run: Run, seconds: float) -> None:
    """Print held-out reward and success before and after, with every reward part."""
    evaluations = run.evaluations
    if len(evaluations) >= 2:
        before, after = evaluations[0], evaluations[-1]
        rows = [
            ("held-out success", before.success, after.success),
            ("held-out reward", before.reward, after.reward),
            *((f"  part {name}", before.parts.get(name, 0.0), after.parts[name]) for name in sorted(after.parts)),
        ]
        run.console.table(
            f"What was learned in {run.step} steps ({after.num_tasks} held-out tasks, greedy)",
            ("", f"step {before.step}", f"step {after.step}", "change"),
            [(name, f"{old:.3f}", f"{new:.3f}", f"{new - old:+.3f}") for name, old, new in rows],
        )
        if after.num_without_verdict or before.num_without_verdict:
            run.console.console.print(
                f"{before.num_without_verdict} and {after.num_without_verdict} held-out tasks had no verdict"
            )
    if run.step < run.total_steps:
        run.console.console.print(
            f"ended early, after step {run.step} of {run.total_steps}: the last {run.config.evaluation.patience} "
            "evaluations brought no higher reward (evaluation.patience)"
        )
    planned = run.config.total_steps(len(run.data.train_tasks))
    if run.step == run.total_steps < planned:
        run.console.console.print(
            f"ended early, after step {run.step} of {planned}: the time of trainer.max_minutes is over; resume=latest "
            "goes on"
        )
    run.console.console.print(f"{run.step} steps in {seconds:.0f} s; everything is in {run.folder}")
    saved = {step_of(path): path for path in run.checkpoints.all()}
    if saved:
        newest = saved[max(saved)]
        run.console.console.print(f"checkpoint {newest.name}; again: skyrl-nat evaluate {run.folder}", soft_wrap=True)
    show_best(run)


def show_best(run: Run) -> None:
    """Print which checkpoint is the best on held-out tasks, if one was evaluated."""
    saved = {step_of(path): path for path in run.checkpoints.all()}
    judged = by_reward(saved, run.rewards)
    if judged:
        best = judged[-1]
        run.console.console.print(
            f"best on held-out tasks: {saved[best].name}, reward {run.rewards[best]:.3f}; go on from it: resume=best",
            soft_wrap=True,
        )
