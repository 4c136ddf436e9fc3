"""Coroutines on an event loop of their own, for callers that block or await.

    Portal      an event loop in a thread
    blocking    a coroutine method of `Operations`, as a blocking method
    awaited     the same as a coroutine for the caller's own event loop

May import the standard library only.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, started by the first call. close() ends both."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` on the portal's loop. Cancelling the future cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="kubeloop-testing", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until `work` is done; return its result or raise its error. Ctrl-C cancels it."""
        __tracebackhide__ = True
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def wait_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` from another loop. Cancellation is passed on."""
        __tracebackhide__ = True
        return await asyncio.wrap_future(self.start(work))

    def close(self) -> None:
        """End the loop and its thread; running work is cancelled."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()


class View(Protocol):
    """An object with `blocking` or `awaited` members: the operations that they call, and the portal that runs them."""

    @property
    def _operations(self) -> Any: ...

    @property
    def _portal(self) -> Portal: ...


class blocking(Generic[P, T]):  # noqa: N801 - used like a property
    """`apply = blocking(Operations.apply)`: a blocking method that calls the view's operations."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, view: View, owner: type) -> Callable[P, T]:
        if view is None:
            return self  # type: ignore[unreachable]  # pydoc accesses it on the class

        @functools.wraps(self._method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            __tracebackhide__ = True  # pytest then shows the line of the test
            return view._portal.wait(self._method(view._operations, *args, **kwargs))

        return call


class awaited(Generic[P, T]):  # noqa: N801
    """`apply = awaited(Operations.apply)`: a coroutine method that calls the view's operations."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, view: View, owner: type) -> Callable[P, Coroutine[Any, Any, T]]:
        if view is None:
            return self  # type: ignore[unreachable]

        @functools.wraps(self._method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            __tracebackhide__ = True
            return await view._portal.wait_async(self._method(view._operations, *args, **kwargs))

        return call
