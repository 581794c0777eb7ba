"""How a command is told to stop: in order by a first signal, at once by a third."""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from skyrl_nat.config.recovery import ENDING_S, STOP_SIGNALS

EXIT_INTERRUPTED = 130


def run_until_stopped(work: Coroutine[Any, Any, None], grace_s: float) -> None:
    """Run to the end; a first signal ends it in order, and within `grace_s` and `ENDING_S`, a third one at once."""
    is_told = threading.Event()
    sigterm = _Sigterm()
    limit_s = grace_s + ENDING_S
    threading.Thread(target=_end_in_time, args=(is_told, limit_s), daemon=True, name="the last end").start()

    async def with_signals() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        num_signals = 0

        def stop(*_: object) -> None:
            """End the work in order; a second signal changes nothing, since that takes its time."""
            nonlocal num_signals
            num_signals += 1
            if num_signals == 1:
                is_told.set()
                if task is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)
            elif num_signals > 2:
                _end_here("the third signal ends it where it is")

        # The loop's own handlers would go with it, and a signal in what is then left of the process would end it.
        for number in STOP_SIGNALS:
            signal.signal(number, stop)
        sigterm.call(stop)
        try:
            await work
        finally:
            # Threads that hang would be waited for as long as they like.
            faulthandler.dump_traceback_later(ENDING_S, exit=True, file=2)  # pyright: ignore[reportArgumentType]

    try:
        asyncio.run(with_signals())
    finally:
        faulthandler.cancel_dump_traceback_later()
        sigterm.give_back()


def leave(code: int) -> NoReturn:
    """End the process with `code`. What is left of it takes seconds, in which no signal may change the code."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    faulthandler.dump_traceback_later(ENDING_S, exit=True, file=2)  # pyright: ignore[reportArgumentType]
    sys.exit(code)


class _Sigterm:
    """Hears SIGTERM whatever its handler is: Ray sets that to the system's default while it ends, below Python.

    The signal is blocked in this thread and all that it begins from now on, and one of them waits for it.
    """

    def __init__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        self._waiting: threading.Thread | None = None
        self._is_over = False

    def call(self, stop: Callable[[], None]) -> None:
        """Call `stop` for each that comes, in a thread of its own."""

        def wait() -> None:
            while not (signal.sigwaitinfo([signal.SIGTERM]).si_pid == os.getpid() and self._is_over):
                stop()

        self._waiting = threading.Thread(target=wait, daemon=True, name="SIGTERM")
        self._waiting.start()

    def give_back(self) -> None:
        """Leave it to the handler that Python knows."""
        if self._waiting is not None and self._waiting.ident is not None:
            self._is_over = True
            signal.pthread_kill(self._waiting.ident, signal.SIGTERM)
            self._waiting.join()
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _heard_by_a_child() -> None:
    """Let a new process be ended by SIGTERM. Python calls this in those with work before `exec`, as Ray starts them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


os.register_at_fork(after_in_child=_heard_by_a_child)


def _end_in_time(is_told: threading.Event, limit_s: float) -> None:
    """Wait for the word to stop, and end the process if that takes longer than it may."""
    is_told.wait()
    time.sleep(limit_s)
    faulthandler.dump_traceback(file=2)  # pyright: ignore[reportArgumentType]
    _end_here(f"a run that is told to stop must end within {limit_s:g} s, it stands where the stacks above say")


def _end_here(why: str) -> None:
    """End the process at once, whatever it does; Ray's processes end with it."""
    os.write(2, f"skyrl-nat: {why}. Go on with resume=latest\n".encode())
    os._exit(EXIT_INTERRUPTED)
