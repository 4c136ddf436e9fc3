"""Disruption controller: the status of PodDisruptionBudgets, which `kubectl drain` and preemption read.

Implements kube-controller-manager v1.36's pkg/controller/disruption for budgets. A change of a budget or of a selected
pod queues the budget; it is counted once per turn of the event loop, whatever the number of changes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.kube.selectors import Selector, selector_from

log = logging.getLogger(__name__)

DELETION_TIMEOUT = timedelta(minutes=2)
"""Time for which a pod with an allowed eviction counts as disrupted if it is not deleted."""

_ALLOWED = "DisruptionAllowed"
_COMPONENT = "controllermanager"
_SCALED: dict[tuple[str, str], Resource[Any]] = {
    ("apps", "ReplicaSet"): REPLICA_SETS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("", "ReplicationController"): REPLICATION_CONTROLLERS,
}


class UnknownPodCount(Exception):
    """The number of expected pods is unknown; the text is Kubernetes'."""


class DisruptionController:
    """The controller of all budgets of a development cluster. Call run() once."""

    def __init__(self, store: ObjectStore, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._events = StoreEventRecorder(store, clock=clock, rng=rng)
        self._selectors: dict[str, dict[str, Selector]] = {}  # namespace -> budget name -> selector
        self._dirty: dict[tuple[str, str], None] = {}  # (namespace, name) of budgets to sync, oldest first
        self._rechecks: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._last_events: dict[str, str] = {}  # uid of a budget -> reason of its last event
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Sync budgets until cancelled."""
        unsubscribe = [
            self._store.subscribe(POD_DISRUPTION_BUDGETS, self._budget_changed),
            self._store.subscribe(PODS, self._pod_changed),
        ]
        try:
            for budget in self._store.list(POD_DISRUPTION_BUDGETS):
                self._add_budget(budget)
            while True:
                while self._dirty:
                    namespace, name = next(iter(self._dirty))
                    del self._dirty[namespace, name]
                    self._sync(namespace, name)
                    await asyncio.sleep(0)
                self._wake.clear()
                await self._wake.wait()
        finally:
            for recheck in self._rechecks.values():
                recheck.cancel()
            for stop in unsubscribe:
                stop()

    def _budget_changed(self, change: Change) -> None:
        budget = change.now.object
        if change.type != "DELETED":
            self._add_budget(budget)
            return
        metadata = budget["metadata"]
        self._selectors.get(metadata["namespace"], {}).pop(metadata["name"], None)
        self._last_events.pop(metadata["uid"], None)

    def _add_budget(self, budget: JSON) -> None:
        metadata = budget["metadata"]
        selectors = self._selectors.setdefault(metadata["namespace"], {})
        selectors[metadata["name"]] = _selector(budget)
        self._enqueue(metadata["namespace"], metadata["name"])

    def _pod_changed(self, change: Change) -> None:
        namespace = change.now.object["metadata"]["namespace"]
        selectors = self._selectors.get(namespace)
        if not selectors:
            return
        versions = [change.now.object, *([change.before.object] if change.before is not None else [])]
        for name, selector in selectors.items():
            if any(selector.matches(version["metadata"].get("labels") or {}) for version in versions):
                self._enqueue(namespace, name)

    def _enqueue(self, namespace: str, name: str) -> None:
        self._dirty[namespace, name] = None
        self._wake.set()

    def _sync(self, namespace: str, name: str) -> None:
        budget = self._store.get(POD_DISRUPTION_BUDGETS, namespace, name)
        if budget is None:
            return
        selector = self._selectors[namespace][name]
        pods = [
            pod for pod in self._store.list(PODS, namespace) if selector.matches(pod["metadata"].get("labels") or {})
        ]
        now = self._clock.now()
        try:
            expected, desired, unmanaged = expected_pods(self._store, budget, pods)
        except UnknownPodCount as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._record_event(budget, "Warning", "CalculateExpectedPodCountFailed", text)
            self._write(budget, failed_status(budget, str(error), rfc3339(now)))
            return
        except Exception as error:  # a failing budget must not stop the others
            log.exception("failed to sync disruption budget", extra={"budget": f"{namespace}/{name}"})
            self._write(budget, failed_status(budget, str(error), rfc3339(now)))
            return
        if not pods:
            self._record_event(budget, "Normal", "NoPods", "No matching pods found")
        elif unmanaged:
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a "
                "result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
                'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self._record_event(budget, "Warning", "UnmanagedPods", text)
        else:
            self._last_events.pop(budget["metadata"]["uid"], None)
        with_disruption_target = disrupted_pods(budget, pods, now)
        healthy = healthy_pods(pods, with_disruption_target)
        self._write(budget, budget_status(budget, healthy, desired, expected, with_disruption_target, rfc3339(now)))
        if with_disruption_target:
            self._recheck(namespace, name, min(map(_time, with_disruption_target.values())) + DELETION_TIMEOUT - now)

    def _recheck(self, namespace: str, name: str, delay: timedelta) -> None:
        """Sync again when the first disrupted pod reaches its timeout."""
        planned = self._rechecks.pop((namespace, name), None)
        if planned is not None:
            planned.cancel()
        seconds = max(0.0, delay.total_seconds()) + 1.0  # API times have a resolution of one second
        loop = asyncio.get_running_loop()
        self._rechecks[namespace, name] = loop.call_later(seconds, self._enqueue, namespace, name)

    def _write(self, budget: JSON, status: JSON) -> None:
        if budget.get("status") != status:
            self._store.update(POD_DISRUPTION_BUDGETS, {**budget, "status": status})

    def _record_event(self, budget: JSON, type_: str, reason: str, message: str) -> None:
        """Record an event unless it repeats the budget's last one."""
        uid = budget["metadata"]["uid"]
        if self._last_events.get(uid) != reason:
            self._last_events[uid] = reason
            self._events.record(budget, type_, reason, message, field_path="", component=_COMPONENT, host="")


def expected_pods(store: ObjectStore, budget: JSON, pods: list[JSON]) -> tuple[int, int, list[str]]:
    """Return (expected pods, desired healthy pods, names of pods without controller). Raises UnknownPodCount."""
    spec = budget["spec"]
    at_most, at_least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if at_most is not None:
        expected, unmanaged = _expected_scale(store, pods)
        return expected, max(0, expected - percent_of(at_most, expected)), unmanaged
    if at_least is None:
        return 0, 0, []
    if isinstance(at_least, int):
        return len(pods), at_least, []
    expected, unmanaged = _expected_scale(store, pods)
    return expected, percent_of(at_least, expected), unmanaged


def percent_of(amount: int | str, total: int) -> int:
    """Return an absolute number, or a percentage of `total` rounded up. Raises UnknownPodCount."""
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%") or not amount[:-1].isdigit():
        raise UnknownPodCount("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(amount[:-1]) * total // 100)


def healthy_pods(pods: list[JSON], with_disruption_target: Mapping[str, str]) -> int:
    return sum(
        "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"] not in with_disruption_target
        and is_true(pod, "Ready")
        for pod in pods
    )


def disrupted_pods(budget: JSON, pods: list[JSON], now: datetime) -> dict[str, str]:
    """Return the pods with an allowed eviction whose deletion is pending, with the time of the eviction."""
    disrupted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    pending = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        if (
            "deletionTimestamp" not in pod["metadata"]
            and name in disrupted
            and now <= _time(disrupted[name]) + DELETION_TIMEOUT
        ):
            pending[name] = disrupted[name]
    return pending


def budget_status(
    budget: JSON, healthy: int, desired: int, expected: int, with_disruption_target: Mapping[str, str], now: str
) -> JSON:
    """Return the status; without expected pods no disruption is allowed, so new pods are protected until counted."""
    allowed = max(0, healthy - desired) if expected > 0 else 0
    generation = budget["metadata"].get("generation", 0)
    status: JSON = {"observedGeneration": generation} if generation else {}
    if with_disruption_target:
        status["disruptedPods"] = dict(with_disruption_target)
    status |= {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    reason = "SufficientPods" if allowed else "InsufficientPods"
    return {**status, "conditions": _conditions(budget, generation, reason, "", now)}


def failed_status(budget: JSON, problem: str, now: str) -> JSON:
    """Return the status after a failed sync: no disruption is allowed."""
    status = budget.get("status") or {}
    conditions = _conditions(budget, status.get("observedGeneration", 0), "SyncFailed", problem, now)
    return {**status, "disruptionsAllowed": 0, "conditions": conditions}


def _conditions(budget: JSON, generation: int, reason: str, message: str, now: str) -> list[JSON]:
    conditions = (budget.get("status") or {}).get("conditions") or []
    before = next((condition for condition in conditions if condition["type"] == _ALLOWED), None)
    state = "True" if reason == "SufficientPods" else "False"
    unchanged = before is not None and before["status"] == state
    condition: JSON = {
        "type": _ALLOWED,
        "status": state,
        **({"observedGeneration": generation} if generation else {}),
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and unchanged else now,
        "reason": reason,
        "message": message,
    }
    return (
        [condition if other is before else other for other in conditions]
        if before is not None
        else [*conditions, condition]
    )


def _expected_scale(store: ObjectStore, pods: list[JSON]) -> tuple[int, list[str]]:
    """Return the sum of the replicas of the pods' controllers. Raises UnknownPodCount."""
    scales: dict[str, int] = {}
    unmanaged = []
    visited: dict[str, None] = {}
    for pod in pods:
        ref = _controller(pod)
        if ref is None:
            unmanaged.append(pod["metadata"]["name"])
        elif ref["uid"] not in visited:
            visited[ref["uid"]] = None
            owner = _scaled_object(store, ref, pod["metadata"]["namespace"])
            if owner is None:
                raise UnknownPodCount(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            scales[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 1)
    return sum(scales.values()), unmanaged


def _scaled_object(store: ObjectStore, ref: JSON, namespace: str) -> JSON | None:
    """Return the object whose replicas count for a pod owned by `ref`: for a ReplicaSet its Deployment, if any."""
    group = ref["apiVersion"].rpartition("/")[0]
    resource = _SCALED.get((group, ref["kind"]))
    owner = None if resource is None else store.get(resource, namespace, ref["name"])
    if owner is None or owner["metadata"]["uid"] != ref["uid"]:
        return None
    above = _controller(owner) if resource is REPLICA_SETS else None
    if above is not None and above["kind"] == "Deployment":
        return _scaled_object(store, above, namespace)
    return owner


def _controller(obj: JSON) -> JSON | None:
    references: list[JSON] = obj["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def _selector(budget: JSON) -> Selector:
    """Return the budget's selector: an empty one selects every pod of the namespace, an absent one none."""
    selector = budget["spec"].get("selector")
    return selector_from(None if selector is None else convert(LabelSelector, selector))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
