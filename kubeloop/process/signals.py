"""Run a coroutine as the main program: on uvloop, with SIGINT and SIGTERM as requests to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop

from kubeloop.kube.user_error import UserError
from kubeloop.process.python_gc import short_collections


def run_until_interrupted(main: Coroutine[Any, Any, int], *, interrupted: int) -> int:
    """Run `main` and return its exit code, or `interrupted` if the user stopped it.

    The first SIGINT or SIGTERM cancels `main`, which then has its own bounded time to drain. A UserError in a group of
    tasks is raised without the group, since the user can act on it; so is a BrokenPipeError, which click turns into a
    quiet exit.
    """
    try:
        return uvloop.run(_guarded(main, interrupted))
    except BaseExceptionGroup as group:
        problem = first_of(group, UserError)
        if problem is not None:
            raise problem from None
        if group.split(BrokenPipeError)[1] is None:
            raise first_of(group, BrokenPipeError) or group from None
        raise


@contextlib.contextmanager
def on_signal(number: signal.Signals, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` on the running loop whenever the signal arrives, for the length of the context."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)


async def _guarded(main: Coroutine[Any, Any, int], interrupted: int) -> int:
    loop = asyncio.get_running_loop()
    gc.freeze()  # imported modules are permanent
    stop_requested = False
    task = loop.create_task(main, name="main")

    def stop() -> None:
        nonlocal stop_requested
        stop_requested = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        with short_collections(time.perf_counter):
            return await task
    except asyncio.CancelledError:
        if stop_requested:
            return interrupted
        raise


def first_of(group: BaseExceptionGroup[BaseException], kind: type[Exception]) -> Exception | None:
    """Return the first exception of a type in a group, at any depth."""
    for error in group.exceptions:
        if isinstance(error, kind):
            return error
        if isinstance(error, BaseExceptionGroup) and (inner := first_of(error, kind)) is not None:
            return inner
    return None
