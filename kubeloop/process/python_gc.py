"""Short garbage collections: none during imports, few in all, and none that traverses all objects.

Imports create a hundred thousand objects and no garbage.

By default, Python collects after 700 new objects: a few requests, whose objects are all in use. That takes 5 % of the
CPU. They are freed by reference counting soon after, so that a later collection has fewer objects to traverse. A pause
delays every pod that is being created or bound, so that a collection traverses few objects, too.

A collection of older objects traverses those of many young collections, and a full one all objects: with 50,000 pods in
the caches that takes 0.15 s and frees nothing, as cached objects are freed by reference counting. So after each long
collection of older objects, the survivors are moved to the permanent generation (gc.freeze), and later collections
traverse newer objects only. Frozen objects are still freed by reference counting; only cycles among them are not. Those
are few, as frozen objects were in use when they were frozen.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

_YOUNG = 0  # generation
_YOUNG_OBJECTS = 5_000  # a collection of these takes 1 to 2 ms
_YOUNG_COLLECTIONS = 2  # before one of older objects
_LONG_SECONDS = 0.002


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
        if info["generation"] == _YOUNG:
            return
        if phase == "start":
            started = seconds()
        elif seconds() - started > _LONG_SECONDS:
            gc.freeze()

    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_COLLECTIONS, thresholds[2])
    gc.callbacks.append(check)
    try:
        yield
    finally:
        gc.callbacks.remove(check)
        gc.set_threshold(*thresholds)
