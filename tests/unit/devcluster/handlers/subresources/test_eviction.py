"""Eviction of pods under a PodDisruptionBudget."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.slow_work import start
from kubeloop.devcluster.handlers.subresources.eviction import PodEvictor
from kubeloop.devcluster.handlers.writing.delete import ObjectDeleter
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import POD_DISRUPTION_BUDGETS, PODS
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
READY: JSON = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


class Eviction:
    """An evictor over a pod ns/p on a node and budgets that select it."""

    def __init__(self, pod_status: JSON, *budget_statuses: JSON) -> None:
        clock, self.store = SetClock(datetime(2026, 1, 1, tzinfo=UTC)), ObjectStore(seconds=lambda: 0.0)
        self._evictor = PodEvictor(self.store, ObjectDeleter(self.store, clock), clock)
        metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}
        self.store.create(PODS, {"metadata": metadata, "spec": {"nodeName": "n"}, "status": pod_status})
        for index, status in enumerate(budget_statuses):
            budget = {"metadata": {"name": f"b{index}", "namespace": "ns", "generation": 1}}
            spec = {"selector": {"matchLabels": {"a": "b"}}}
            self.store.create(POD_DISRUPTION_BUDGETS, {**budget, "spec": spec, "status": status})

    def evict(self, name: str = "p", **options: Any) -> None:
        assert start(self._evictor.evict(get_served_resource(PODS), name, "ns", options)) is None  # without waiting

    @property
    def pod(self) -> JSON:
        return self.store.list(PODS)[0]


def budget_status(allowed: int, **fields: Any) -> JSON:
    return {"observedGeneration": 1, "disruptionsAllowed": allowed, **fields}


def test_eviction_is_counted_in_the_budget_and_marks_the_pod():
    eviction = Eviction(READY, budget_status(1))
    eviction.evict()
    (budget,) = eviction.store.list(POD_DISRUPTION_BUDGETS)
    assert budget["status"]["disruptionsAllowed"] == 0
    assert budget["status"]["disruptedPods"] == {"p": "2026-01-01T00:00:00Z"}
    assert budget["status"]["conditions"][0]["reason"] == "InsufficientPods"
    assert eviction.pod["metadata"]["deletionGracePeriodSeconds"] == 30
    condition = eviction.pod["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


@pytest.mark.parametrize(
    ("pod_status", "budget"),
    [
        pytest.param({"phase": "Pending"}, budget_status(0), id="pending pod"),
        pytest.param({"phase": "Succeeded"}, budget_status(0), id="finished pod"),
        pytest.param(
            {"phase": "Running"}, budget_status(0, currentHealthy=2, desiredHealthy=2), id="unhealthy pod to spare"
        ),
    ],
)
def test_eviction_that_needs_no_disruption(pod_status: JSON, budget: JSON):
    eviction = Eviction(pod_status, budget)
    eviction.evict(gracePeriodSeconds=5)
    assert eviction.store.list(POD_DISRUPTION_BUDGETS)[0]["status"] == budget
    assert not eviction.store.list(PODS) or "deletionTimestamp" in eviction.pod["metadata"]


@pytest.mark.parametrize(
    ("budgets", "code", "message", "cause"),
    [
        pytest.param(
            [budget_status(0, currentHealthy=2, desiredHealthy=2)],
            429,
            VIOLATED,
            "The disruption budget b0 needs 2 healthy pods and has 2 currently",
            id="no disruption allowed",
        ),
        pytest.param(
            [{"disruptionsAllowed": 1}],
            429,
            VIOLATED,
            "The disruption budget b0 is still being processed by the server.",
            id="budget is not observed",
        ),
        pytest.param(
            [budget_status(-1)],
            403,
            'poddisruptionbudget.policy "b0" is forbidden: pdb disruptions allowed is negative',
            "",
            id="negative",
        ),
        pytest.param(
            [budget_status(1), budget_status(1)],
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            "",
            id="two budgets",
        ),
    ],
)
def test_eviction_is_refused(budgets: list[JSON], code: int, message: str, cause: str):
    eviction = Eviction(READY, *budgets)
    with pytest.raises(StatusError) as raised:
        eviction.evict()
    assert (raised.value.code, raised.value.message) == (code, message)
    causes = (raised.value.details or {}).get("causes", ())
    assert [entry["message"] for entry in causes] == ([cause] if cause else [])
    assert "deletionTimestamp" not in eviction.pod["metadata"]


def test_eviction_of_a_missing_pod():
    with pytest.raises(StatusError, match='pods "x" not found'):
        Eviction(READY).evict("x")


def test_dry_run_changes_nothing():
    eviction = Eviction(READY, budget_status(1))
    eviction.evict(dryRun=["All"])
    assert eviction.pod["status"] == READY
    assert eviction.store.list(POD_DISRUPTION_BUDGETS)[0]["status"] == budget_status(1)
