"""Generations of written EndpointSlices."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.runtime.services.slice_tracker import EndpointSliceTracker


def written(uid: str = "u", generation: int = 1) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "web"}
    return {"metadata": {"namespace": "ns", "uid": uid, "generation": generation, "labels": labels}}


def test_cache_is_stale_until_it_shows_the_last_write():
    tracker = EndpointSliceTracker()
    assert not tracker.is_stale("ns/web", [])
    tracker.written(written(generation=2))
    assert tracker.is_stale("ns/web", [])
    assert tracker.is_stale("ns/web", [written(generation=1)])
    assert not tracker.is_stale("ns/web", [written(generation=2)])
    assert not tracker.is_new(written(generation=2))
    assert tracker.is_new(written(generation=3))
    assert tracker.is_new(written("other"))


def test_cache_is_stale_while_it_shows_a_deleted_slice():
    tracker = EndpointSliceTracker()
    tracker.deleted(written())
    assert tracker.is_stale("ns/web", [written()])
    assert not tracker.is_stale("ns/web", [])
    assert not tracker.pop_foreign_deletion(written())
    tracker.written(written())
    assert tracker.pop_foreign_deletion(written())
    tracker.written(written())
    tracker.forget("ns/web")
    assert not tracker.is_stale("ns/web", [])
