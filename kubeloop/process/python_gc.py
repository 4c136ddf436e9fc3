"""Short garbage collections: none during imports, few in all, and few full ones.

Imports create a hundred thousand objects and no garbage.

By default, Python collects after 700 new objects: a few requests, whose objects are all in use. That takes 5 % of the
CPU. They are freed by reference counting soon after, so that a later collection has fewer objects to traverse.

A full collection traverses all objects and blocks the event loop. With 50,000 pods in the caches that takes 0.15 s and
frees nothing: cached objects are freed by reference counting. So after each long full collection, the surviving objects
are moved to the permanent generation (gc.freeze), and later collections traverse newer objects only. Frozen objects are
still freed by reference counting; only cycles among them are not. Those are few, as frozen objects were in use when
they were frozen.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

_FULL = 2  # generation
_YOUNG_OBJECTS = 40_000  # a collection of these takes less than 5 ms
_LONG_SECONDS = 0.01


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection for the length of the context, then exclude all existing objects from it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def short_collections(seconds: Callable[[], float]) -> Iterator[None]:
    """Keep garbage collections short for the length of the context. seconds(): a clock for durations."""
    started = 0.0

    def check(phase: str, info: dict[str, int]) -> None:
        nonlocal started
        if info["generation"] != _FULL:
            return
        if phase == "start":
            started = seconds()
        elif seconds() - started > _LONG_SECONDS:
            gc.freeze()

    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *thresholds[1:])
    gc.callbacks.append(check)
    try:
        yield
    finally:
        gc.callbacks.remove(check)
        gc.set_threshold(*thresholds)
