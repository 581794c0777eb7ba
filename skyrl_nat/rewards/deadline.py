"""Blocking calls from asyncio with a deadline that holds even where the call never returns."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from skyrl_nat.errors import DeadlineError

T = TypeVar("T")


async def call_in_thread(function: Callable[..., T], *args: object, timeout_s: float, name: str) -> T:
    """Return `function(*args)`, run in a thread of its own.

    Thread pools lose a slot to every call that hangs, and join it at exit; a daemon thread does neither.

    Raises:
        DeadlineError: It did not return within `timeout_s`; its thread is left behind.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as caught:  # noqa: BLE001 - carried over to the caller
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    try:
        return await asyncio.wait_for(future, timeout_s)
    except TimeoutError as error:
        if future.done() and not future.cancelled():
            raise  # the function's own
        raise DeadlineError(f"{name} must return within {timeout_s:g} s, but did not. Look for what hangs") from error
