"""Running a coroutine as the main program: uvloop, and both SIGINT and SIGTERM as the wish to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop

from kubeloop.kube.errors import UserError
from kubeloop.process.python_gc import short_collections


def run_until_interrupted(main: Coroutine[Any, Any, int], *, interrupted: int) -> int:
    """Run `main` and return its exit code, or `interrupted` if the user stopped it.

    The first SIGINT or SIGTERM cancels `main`, which then has its own bounded time to drain. A UserError out of a
    group of tasks is raised as itself, since it is the one thing the user can act on; so is a BrokenPipeError,
    of which click makes a quiet end.
    """
    try:
        return uvloop.run(_guarded(main, interrupted))
    except BaseExceptionGroup as group:
        problem = _first(group, UserError)
        if problem is not None:
            raise problem from None
        if group.split(BrokenPipeError)[1] is None:
            raise _first(group, BrokenPipeError) or group from None
        raise


@contextlib.contextmanager
def on_signal(number: signal.Signals, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` on the running loop whenever the signal comes, for the length of the context."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)


async def _guarded(main: Coroutine[Any, Any, int], interrupted: int) -> int:
    loop = asyncio.get_running_loop()
    gc.freeze()  # what was imported so far stays for good
    stopping = False
    task = loop.create_task(main, name="main")

    def stop() -> None:
        nonlocal stopping
        stopping = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        with short_collections(time.perf_counter):
            return await task
    except asyncio.CancelledError:
        if stopping:
            return interrupted
        raise


def _first(group: BaseExceptionGroup[BaseException], kind: type[Exception]) -> Exception | None:
    """The first exception of a kind in a group, however deep."""
    for error in group.exceptions:
        if isinstance(error, kind):
            return error
        if isinstance(error, BaseExceptionGroup) and (inner := _first(error, kind)) is not None:
            return inner
    return None
