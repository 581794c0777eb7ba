"""Makes and proves many tasks at once, and remembers on disk what it has made."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.making.prove import prove
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle, UnansweredError
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator, open_oracle
from skyrl_nat.errors import DataError
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines
from skyrl_nat.sandbox.base import Sandbox
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import Task

SAY_EVERY_S = 10.0
Build = Callable[[ReferenceOracle], Task]
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of one recipe."""

    key: str
    task: Task | None = None
    reason: str = ""
    """Why there is no task."""


class MadeStore:
    """An append-only file of what was made, so that a killed run goes on where it was; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a torn last line is left out."""
        self._path = path
        self._lock = threading.Lock()
        self._made: dict[str, Made] = {}
        with open_lines(path) as file:
            lines = mend_lines(file, path)
        for line in lines:
            item = json.loads(line)
            task = Task(**item["task"]) if item["task"] else None
            self._made[item["key"]] = Made(key=item["key"], task=task, reason=item["reason"])

    def get(self, key: str) -> Made | None:
        """Return what was made of a key."""
        return self._made.get(key)

    def add(self, made: Made) -> None:
        """Write one down."""
        record = {"key": made.key, "task": asdict(made.task) if made.task else None, "reason": made.reason}
        with self._lock, open_lines(self._path) as file:
            append_lines(file, encode_line(record))
            self._made[made.key] = made


class Maker:
    """Runs references and validator on `num_workers` sandboxes."""

    def __init__(
        self,
        config: EnvironmentConfig,
        store: MadeStore,
        *,
        num_workers: int,
        sandbox: Sandbox | None = None,
        oracle: ReferenceOracle | None = None,
    ) -> None:
        """Make the sandboxes; they start with the first task.

        Args:
            config: Section `environment`: which sandbox.
            store: Remembers what was made.
            num_workers: Tasks made at once; one per core.
            sandbox: One to use in place of the config's; closed with this maker all the same.
            oracle: One to use in place of one with a sandbox of its own; closed as well.
        """
        self._store = store
        self.num_workers = num_workers
        config = replace(config, sandbox=replace(config.sandbox, num_servers=num_workers))
        self.sandbox = sandbox or open_sandbox(config.sandbox)
        self.oracle = oracle or open_oracle(config.sandbox, num_servers=num_workers)
        self.validator = NatAgentValidator(config, self.sandbox, self.oracle)

    def make_all(self, work: Sequence[tuple[str, Build]]) -> list[Made]:
        """Return what became of every piece of work, in its order.

        Args:
            work: Keys, no two the same, and functions that build tasks, to be proved here.
        """
        progress = _Progress(len(work))
        results: dict[str, Made] = {}
        for made in self._make_each(work):
            results[made.key] = made
            progress.count(is_made=made.task is not None)
        return [results[key] for key, _ in work]

    def _make_each(self, work: Sequence[tuple[str, Build]]) -> Iterator[Made]:
        if self.num_workers == 1:
            yield from (self.make(key, build) for key, build in work)
            return
        pool = ThreadPoolExecutor(self.num_workers)
        try:
            for future in as_completed([pool.submit(self.make, key, build) for key, build in work]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # stopped in between: what has begun ends, nothing new begins

    def close(self) -> None:
        """End the sandboxes."""
        self.validator.close()

    def make(self, key: str, build: Build) -> Made:
        """Return what became of one piece of work; thread-safe."""
        if (known := self._store.get(key)) is not None:
            return known
        try:
            task = build(self.oracle)
            faults = prove(task, self.validator, self.oracle)
            made = Made(key=key, reason="; ".join(faults)) if faults else Made(key=key, task=task)
        except (DataError, UnansweredError) as error:
            made = Made(key=key, reason=str(error))
        self._store.add(made)
        return made


class _Progress:
    """Says now and then how far it is."""

    def __init__(self, total: int) -> None:
        self._total, self._made, self._rejected = total, 0, 0
        self._started = self._said = time.monotonic()

    def count(self, *, is_made: bool) -> None:
        self._made += is_made
        self._rejected += not is_made
        done, now = self._made + self._rejected, time.monotonic()
        if now - self._said > SAY_EVERY_S:
            self._said = now
            rate = done / (now - self._started)
            left = (self._total - done) / rate
            _logger.info("%d of %d, %d rejected, %.1f/s, %.0f s left", done, self._total, self._rejected, rate, left)
