"""Short garbage collections: none while modules are imported, and few full ones.

Importing makes a hundred thousand objects and no garbage.

A full collection looks at all objects there are, and holds the loop meanwhile. With 50,000 pods in the caches that
takes 0.15 s, and it finds nothing: objects of caches go by reference counting. So whenever a full collection has taken
long, what survived it is set aside (gc.freeze), and later ones look only at what has come since. What is set aside is
still freed once nobody refers to it, except for cycles: those stay. They are few, as all that was set aside at such a
moment is what was in use.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

_FULL = 2  # the generation
_LONG_SECONDS = 0.01


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """No collection for the length of the context, and what is there by its end is never looked at again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def short_collections(seconds: Callable[[], float], *, long_seconds: float = _LONG_SECONDS) -> Iterator[None]:
    """Keep collections short for the length of the context. seconds(): a clock for durations."""
    started = 0.0

    def look(phase: str, info: dict[str, int]) -> None:
        nonlocal started
        if info["generation"] != _FULL:
            return
        if phase == "start":
            started = seconds()
        elif seconds() - started > long_seconds:
            gc.freeze()

    gc.callbacks.append(look)
    try:
        yield
    finally:
        gc.callbacks.remove(look)
