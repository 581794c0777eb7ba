"""A job as it goes on, as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse

from skyrl_nat.json_lines import encode_line
from skyrl_nat.service.paths import inside_file
from skyrl_nat.service.progress import METRICS, MetricsLine, lines_from
from skyrl_nat.service.routes.errors import ServiceError
from skyrl_nat.service.service import TrainingService
from skyrl_nat.service.store import FINAL

LOOK_S = 0.5
HEARTBEAT_S = 15.0
LINES_AT_ONCE = 200


class EventStreams:
    """All clients that follow jobs."""

    def __init__(self, service: TrainingService) -> None:
        """Begin with none."""
        self._service = service
        self._num_open = 0

    def open(self, job_id: str, last_event_id: str | None) -> StreamingResponse:
        """Return the events of a job from where a client was.

        Raises:
            ServiceError: There is no such job, or too many clients.
        """
        self._service.job(job_id)
        if self._num_open >= self._service.settings.limits.max_streams:
            raise ServiceError(503, "too_many", "the service must have a stream free, all are in use. Ask again later")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._counted(job_id, _position(last_event_id)), media_type="text/event-stream", headers=headers
        )

    async def _counted(self, job_id: str, position: "Position") -> AsyncIterator[bytes]:
        self._num_open += 1
        try:
            async for event in self._events(job_id, position):
                yield event
        finally:
            self._num_open -= 1

    async def _events(self, job_id: str, position: "Position") -> AsyncIterator[bytes]:
        follower, shown, last_sent = Follower(self._service.root, position), "", time.monotonic()
        while True:
            job = await run_in_threadpool(self._service.job, job_id)
            answer = (await run_in_threadpool(self._service.answer, job)).model_dump_json(exclude={"metrics"})
            # Lines first: who sees a final state has seen all of them.
            while found := await run_in_threadpool(follower.read, job.run):
                last_sent = time.monotonic()
                for event_id, line in found:
                    text = encode_line(line.values).decode().rstrip("\n")
                    yield format_sse_event(event="metrics", data_str=text, id=event_id)
            if answer != shown:
                shown, last_sent = answer, time.monotonic()
                yield format_sse_event(event="state", data_str=answer)
            if job.state in FINAL:
                return
            if time.monotonic() - last_sent > HEARTBEAT_S:
                last_sent = time.monotonic()
                yield format_sse_event(comment="still here")
            await asyncio.sleep(LOOK_S)


Position = tuple[int, int]
"""Step, and which line of that step: evaluations have lines of their own."""


def _position(last_event_id: str | None) -> Position:
    step, _, number = (last_event_id or "").partition(".")
    if not (step.isdecimal() and (number or "0").isdecimal() and len(step + number) < 20):
        return (-1, 0)
    return int(step), int(number or 0)


class Follower:
    """Reads the lines of a file that grows, each once."""

    def __init__(self, root: Path, position: Position) -> None:
        """Begin behind a position."""
        self._root, self._behind, self._offset = root, position, 0
        self._last: Position = (-1, 0)

    def read(self, run: str) -> list[tuple[str, MetricsLine]]:
        """Return some new lines with their event ids."""
        path = inside_file(self._root, run, METRICS)
        if path is None:
            return []
        if path.stat().st_size < self._offset:
            # A run that was resumed has cut off what it trains again.
            self._offset, self._last = 0, (-1, 0)
        found: list[tuple[str, MetricsLine]] = []
        for line in lines_from(path, self._offset):
            self._offset = line.end
            step, number = self._last
            self._last = (line.step, number + 1) if line.step == step else (line.step, 0)
            if self._last > self._behind:
                found.append((f"{line.step}.{self._last[1]}" if self._last[1] else str(line.step), line))
            if len(found) == LINES_AT_ONCE:
                break
        return found
