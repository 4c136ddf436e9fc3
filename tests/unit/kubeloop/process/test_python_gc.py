"""Objects that survive a long full garbage collection are excluded from later ones."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kubeloop.process.python_gc import short_collections


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(("takes_seconds", "set_aside"), [(0.02, True), (0.005, False)], ids=["long", "short"])
def test_objects_are_frozen_after_a_long_full_collection(takes_seconds: float, set_aside: bool) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += takes_seconds
        return now

    with short_collections(clock, long_seconds=0.01):
        gc.collect()
        assert (gc.get_freeze_count() > 0) == set_aside
        gc.unfreeze()
        gc.collect(1)  # a collection of a young generation never freezes
        assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() == 0, "the callback is removed"
