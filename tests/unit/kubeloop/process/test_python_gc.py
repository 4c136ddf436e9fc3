"""Objects that survive a long collection of older objects are excluded from later ones."""

from __future__ import annotations

import gc

import pytest

from kubeloop.process.python_gc import _LONG_SECONDS, short_collections


class TrackedObject:
    """An object that is not immortal: Python 3.12 freezes immortal objects in each collection."""


def is_frozen(obj: object) -> bool:
    """Return True if full collections do not traverse `obj`."""
    return all(tracked is not obj for tracked in gc.get_objects())


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize(
    ("takes_seconds", "frozen"), [(2 * _LONG_SECONDS, True), (_LONG_SECONDS / 2, False)], ids=["long", "short"]
)
def test_objects_are_frozen_after_a_long_collection(generation: int, takes_seconds: float, frozen: bool) -> None:
    now, tracked = 0.0, TrackedObject()

    def clock() -> float:
        nonlocal now
        now += takes_seconds
        return now

    threshold = gc.get_threshold()
    with short_collections(clock):
        assert gc.get_threshold()[0] > threshold[0]
        gc.collect(generation)
        assert is_frozen(tracked) == frozen
        tracked = TrackedObject()
        gc.collect(0)  # a collection of a young generation never freezes
        assert not is_frozen(tracked)
    gc.collect()
    assert not is_frozen(tracked), "the callback is removed"
    assert gc.get_threshold() == threshold
