"""Begin and end of the reconcile of a cached object."""

from __future__ import annotations

import logging
import random

import pytest

from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile, valid_selector
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.store import Store
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.api_types import LabelSelector, LabelSelectorRequirement, ObjectMeta, Pod
from kubeloop.tracing.recording.reconcile_recorder import Reconcile, ReconcileRecorder
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION

REQUEST = f"00-{'a' * 32}-{'b' * 16}-01"


def cached(*pods: Pod) -> Store[Pod]:
    store = Store[Pod]()
    for pod in pods:
        store.put(pod.key, pod)
    return store


@pytest.fixture
def records() -> list[ReconcileRecord]:
    """Finished reconciles."""
    return []


def recorder(records: list[ReconcileRecord]) -> ReconcileRecorder:
    return ReconcileRecorder(
        clock=SystemClock(), rng=random.Random(1), on_finished=lambda record, sampled: records.append(record)
    )


async def unexpected_sync(pod: Pod, reconcile: Reconcile) -> float | None:
    raise AssertionError(f"sync of {pod.key}")


async def test_sync_of_cached_object_has_trace_linked_to_request(records):
    pod = Pod(metadata=ObjectMeta(name="web", namespace="ns", annotations={TRACEPARENT_ANNOTATION: REQUEST}))
    queue = WorkQueue("pod")
    queue.add("ns/web", "pod changed")
    reconciles = CachedReconcile[Pod]("pod", cached(pod), queue, recorder(records))

    async def sync(obj: Pod, reconcile: Reconcile) -> float | None:
        reconcile.add_action("update status")
        return 3.0

    assert await reconciles.run("ns/web", sync) == 3.0
    (record,) = records
    assert (record.reason, record.links, record.error) == ("pod changed", [(REQUEST, "cause")], None)


async def test_error_of_sync_ends_trace(records):
    pod = Pod(metadata=ObjectMeta(name="web", namespace="ns"))
    reconciles = CachedReconcile[Pod]("pod", cached(pod), WorkQueue("pod"), recorder(records))
    with pytest.raises(AssertionError):
        await reconciles.run("ns/web", unexpected_sync)
    assert records[0].error == "sync of ns/web"


async def test_records_of_deleted_object_are_dropped(records):
    forgotten: list[str] = []
    consistency = ConsistencyStore({"pods": lambda: "8"})
    consistency.wrote_at("ns/web", "u1", "pods", "7")
    reconciles = CachedReconcile[Pod](
        "pod", cached(), WorkQueue("pod"), recorder(records), forgotten.append, consistency=consistency
    )
    assert await reconciles.run("ns/web", unexpected_sync) is None
    assert forgotten == ["ns/web"]


async def test_stale_cache_postpones_sync(records):
    consistency = ConsistencyStore({"pods": lambda: "6"})
    consistency.wrote_at("ns/web", "u1", "pods", "7")
    queue = WorkQueue("pod")
    queue.add("ns/web", "pod changed")
    reconciles = CachedReconcile[Pod]("pod", cached(), queue, recorder(records), consistency=consistency)
    with pytest.raises(StaleCache):
        await reconciles.run("ns/web", unexpected_sync)
    assert queue.pop_reasons("ns/web") == "pod changed"
    assert records == []


def test_invalid_selector_is_logged(caplog):
    invalid = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Near"),))
    with caplog.at_level(logging.ERROR):
        assert valid_selector("ReplicaSet", "ns/web", invalid) is None
    assert "invalid selector, left alone: ReplicaSet ns/web" in caplog.text
