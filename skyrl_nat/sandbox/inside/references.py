"""Runs reference functions of the data set, in a sandbox of their own where nothing of the policy ever is.

`python` jobs import it: `from references import answer`. Stdlib only.
"""

import asyncio
import builtins
import json
import signal
import textwrap
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from values import encode, error_report

CALL_TIMEOUT_S = 1.0
"""A mutant may never return."""
BUDGET_S = 20.0
"""For all calls of a job: whoever asks what is slow to answer must not make the whole job fail."""


class Reference:
    """One reference, callable as NAT would call the function."""

    def __init__(self, item: dict, others: dict[str, "Reference"]) -> None:
        """Compile its source: `async def run(...)`."""
        self._item = item
        self._others = others

    async def ainvoke(self, value: Any, options: dict | None = None) -> Any:
        """Return the answer to one input."""
        config = SimpleNamespace(**{**self._item["config"], **(options or {})})
        scope: dict[str, Any] = {"config": config, **self._others}
        exec(compile(textwrap.dedent(self._item["source"]), "reference", "exec"), scope)
        run = scope["run"]
        if run.__code__.co_argcount == 1:
            return await run(value)
        return await run(**value)


def answer(arguments: dict) -> Iterator[dict]:
    """Yield `{"variant", "call", "output" or "raises"}` for every variant and call.

    Args:
        arguments: `references` (name -> source, config), `variants` (each: name -> source that replaces one),
            `calls` (`{"chain": [names], "input", "options"}`: what one gives is the next one's input).
    """
    until = time.monotonic() + BUDGET_S
    for number, replaced in enumerate(arguments["variants"]):
        references: dict[str, Reference] = {}
        for name, item in arguments["references"].items():
            references[name] = Reference(item | {"source": replaced.get(name, item["source"])}, references)
        for index, call in enumerate(arguments["calls"]):
            is_late = time.monotonic() > until
            outcome = {"raises": "TimeoutError"} if is_late else _outcome(references, call)
            yield {"variant": number, "call": index, **outcome}


def _outcome(references: dict[str, Reference], call: dict) -> dict:
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, CALL_TIMEOUT_S)
    try:
        value = asyncio.run(_chain(references, call))
        return {"output": encode(json.loads(json.dumps(value)) if isinstance(value, tuple) else value)}
    except BaseException as error:  # noqa: BLE001 - a mutant may raise anything
        known = [name for name in error_report(error)["raised"] if hasattr(builtins, name)]
        return {"raises": (known or ["Exception"])[0], "message": str(error)[:200]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


async def _chain(references: dict[str, Reference], call: dict) -> Any:
    value = call["input"]
    for name in call["chain"]:
        value = await references[name].ainvoke(value, call.get("options"))
    return value


def _stop(*_: object) -> None:
    raise TimeoutError(f"no answer in {CALL_TIMEOUT_S:g} s")
