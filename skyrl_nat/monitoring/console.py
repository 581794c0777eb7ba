"""What a person sees: the plan at the start, live progress, one line per step, a table at the end."""

from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

SHOWN = (
    ("reward", "rollout/reward/mean", "{:.3f}"),
    ("success", "rollout/success/mean", "{:.2f}"),
    ("loss", "loss/policy", "{:+.4f}"),
    ("grad", "loss/grad_norm", "{:.3f}"),
    ("tokens", "rollout/completion_tokens/mean", "{:.0f}"),
    ("play s", "time/rollout_s", "{:.1f}"),
    ("train s", "time/train_s", "{:.1f}"),
    ("push s", "time/push_s", "{:.1f}"),
    ("tokens/s per GPU", "throughput/engine_tokens_per_gpu_s", "{:.0f}"),
    ("MFU", "train/mfu", "{:.0%}"),
    ("GPUs rollout", "gpu/rollout/share", "{:.0%}"),
    ("train", "gpu/train/share", "{:.0%}"),
    ("push", "gpu/push/share", "{:.0%}"),
    ("offload", "gpu/offload/share", "{:.0%}"),
    ("idle", "gpu/idle/share", "{:.0%}"),
)


class ConsoleBackend:
    """Prints to a terminal with a live bar, or plain lines where there is none."""

    def __init__(self, console: Console | None = None) -> None:
        """Use a given console, or one on standard error."""
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._bar = self._progress.add_task("steps", total=None)

    def __enter__(self) -> "ConsoleBackend":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def status(self, text: str) -> None:
        """Say what is being done now."""
        self._progress.update(self._bar, description=text)
        if not self.console.is_terminal:
            self.console.print(text)

    def warn(self, text: str) -> None:
        """Print a line that stays, above the live display too."""
        self.console.print(text, style="bold red", soft_wrap=True, markup=False)

    def set_total(self, total: int, done: int = 0) -> None:
        """Say how many steps there are."""
        self._progress.update(self._bar, total=total, completed=done)

    def rewind(self, step: int) -> None:
        """Let the bar begin where the run goes on."""
        self._progress.update(self._bar, completed=step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one line for a training step; other metrics are not printed."""
        if "loss/policy" not in metrics:
            return
        parts = [f"{label} {form.format(metrics[name])}" for label, name, form in SHOWN if name in metrics]
        self.console.print(f"step {step}: " + ", ".join(parts))
        self._progress.update(self._bar, completed=step)

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a small table."""
        table = Table(title=title, title_justify="left")
        for number, name in enumerate(header):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def close(self) -> None:
        """Stop the live display."""
        self._progress.stop()
