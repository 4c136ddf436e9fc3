"""The status of PodDisruptionBudgets: how many of their pods may go now. `kubectl drain` and preemption read it.

What the disruption controller of kube-controller-manager v1.36 does for budgets (pkg/controller/disruption). A change
of a budget or of a pod it selects makes it count anew; between two turns of the event loop once, however many changed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.simulation.events import KubeletEvents
from kubeloop.devcluster.storage.store import Change, Store
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
"""How long a pod whose eviction was allowed counts as gone, if nobody deletes it."""

_ALLOWED = "DisruptionAllowed"
_COMPONENT = "controllermanager"
_SCALED: dict[tuple[str, str], Resource[Any]] = {
    ("apps", "ReplicaSet"): REPLICA_SETS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("", "ReplicationController"): REPLICATION_CONTROLLERS,
}


class CannotCount(Exception):
    """How many pods there should be cannot be told; the text is Kubernetes'."""


class DisruptionBudgets:
    """All budgets of a development cluster. `run()` once."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._events = KubeletEvents(store, clock=clock, rng=rng)
        self._selectors: dict[str, dict[str, Selector]] = {}  # namespace -> name of a budget -> whom it selects
        self._dirty: dict[tuple[str, str], None] = {}  # (namespace, name) of budgets to count, oldest first
        self._rechecks: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._told: dict[str, str] = {}  # uid of a budget -> reason of its last event
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Count until cancelled."""
        unsubscribe = [
            self._store.subscribe(POD_DISRUPTION_BUDGETS, self._budget_changed),
            self._store.subscribe(PODS, self._pod_changed),
        ]
        try:
            for budget in self._store.list(POD_DISRUPTION_BUDGETS):
                self._learn(budget)
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
            for each in unsubscribe:
                each()

    def _budget_changed(self, change: Change) -> None:
        budget = change.now.object
        if change.type != "DELETED":
            self._learn(budget)
            return
        metadata = budget["metadata"]
        self._selectors.get(metadata["namespace"], {}).pop(metadata["name"], None)
        self._told.pop(metadata["uid"], None)

    def _learn(self, budget: JSON) -> None:
        metadata = budget["metadata"]
        selectors = self._selectors.setdefault(metadata["namespace"], {})
        selectors[metadata["name"]] = _selector(budget)
        self._look_at(metadata["namespace"], metadata["name"])

    def _pod_changed(self, change: Change) -> None:
        namespace = change.now.object["metadata"]["namespace"]
        selectors = self._selectors.get(namespace)
        if not selectors:
            return
        versions = [change.now.object, *([change.before.object] if change.before is not None else [])]
        for name, selector in selectors.items():
            if any(selector.matches(each["metadata"].get("labels") or {}) for each in versions):
                self._look_at(namespace, name)

    def _look_at(self, namespace: str, name: str) -> None:
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
        except CannotCount as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._tell(budget, "Warning", "CalculateExpectedPodCountFailed", text)
            self._write(budget, failed_status(budget, str(error), rfc3339(now)))
            return
        except Exception as error:  # one budget that cannot be counted must not stop all the others
            log.exception("cannot count for a disruption budget", extra={"budget": f"{namespace}/{name}"})
            self._write(budget, failed_status(budget, str(error), rfc3339(now)))
            return
        if not pods:
            self._tell(budget, "Normal", "NoPods", "No matching pods found")
        elif unmanaged:
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a "
                "result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
                'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self._tell(budget, "Warning", "UnmanagedPods", text)
        else:
            self._told.pop(budget["metadata"]["uid"], None)
        with_disruption_target = disrupted_pods(budget, pods, now)
        healthy = healthy_pods(pods, with_disruption_target)
        self._write(budget, budget_status(budget, healthy, desired, expected, with_disruption_target, rfc3339(now)))
        if with_disruption_target:
            self._recheck(namespace, name, min(map(_time, with_disruption_target.values())) + DELETION_TIMEOUT - now)

    def _recheck(self, namespace: str, name: str, delay: timedelta) -> None:
        """Count again once the first of the pods that were to go has had its time."""
        planned = self._rechecks.pop((namespace, name), None)
        if planned is not None:
            planned.cancel()
        seconds = max(0.0, delay.total_seconds()) + 1.0  # times of the API are whole seconds
        loop = asyncio.get_running_loop()
        self._rechecks[namespace, name] = loop.call_later(seconds, self._look_at, namespace, name)

    def _write(self, budget: JSON, status: JSON) -> None:
        if budget.get("status") != status:
            self._store.update(POD_DISRUPTION_BUDGETS, {**budget, "status": status})

    def _tell(self, budget: JSON, type_: str, reason: str, message: str) -> None:
        """Record an event, unless it is what was said of this budget last."""
        uid = budget["metadata"]["uid"]
        if self._told.get(uid) != reason:
            self._told[uid] = reason
            self._events.record(budget, type_, reason, message, field_path="", component=_COMPONENT, host="")


def expected_pods(store: Store, budget: JSON, pods: list[JSON]) -> tuple[int, int, list[str]]:
    """How many pods there should be, how many of them healthy, and the names of pods without a controller.

    Raises CannotCount.
    """
    spec = budget["spec"]
    at_most, at_least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if at_most is not None:
        expected, unmanaged = _expected_scale(store, pods)
        return expected, max(0, expected - scaled(at_most, expected)), unmanaged
    if at_least is None:
        return 0, 0, []
    if isinstance(at_least, int):
        return len(pods), at_least, []
    expected, unmanaged = _expected_scale(store, pods)
    return expected, scaled(at_least, expected), unmanaged


def scaled(amount: int | str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up. Raises CannotCount."""
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%") or not amount[:-1].isdigit():
        raise CannotCount("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(amount[:-1]) * total // 100)


def healthy_pods(pods: list[JSON], with_disruption_target: Mapping[str, str]) -> int:
    return sum(
        "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"] not in with_disruption_target
        and is_true(pod, "Ready")
        for pod in pods
    )


def disrupted_pods(budget: JSON, pods: list[JSON], now: datetime) -> dict[str, str]:
    """Of the pods whose eviction was allowed, those whose deletion is still awaited, with the time of the eviction."""
    noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    awaited = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        if (
            "deletionTimestamp" not in pod["metadata"]
            and name in noted
            and now <= _time(noted[name]) + DELETION_TIMEOUT
        ):
            awaited[name] = noted[name]
    return awaited


def budget_status(
    budget: JSON, healthy: int, desired: int, expected: int, with_disruption_target: Mapping[str, str], now: str
) -> JSON:
    """Without expected pods none may go: those that appear first are safe until they are counted."""
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
    """Where nothing can be counted, nothing is allowed."""
    status = budget.get("status") or {}
    conditions = _conditions(budget, status.get("observedGeneration", 0), "SyncFailed", problem, now)
    return {**status, "disruptionsAllowed": 0, "conditions": conditions}


def _conditions(budget: JSON, generation: int, reason: str, message: str, now: str) -> list[JSON]:
    known = (budget.get("status") or {}).get("conditions") or []
    before = next((each for each in known if each["type"] == _ALLOWED), None)
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
    return [condition if each is before else each for each in known] if before is not None else [*known, condition]


def _expected_scale(store: Store, pods: list[JSON]) -> tuple[int, list[str]]:
    """The sum of the replicas that the pods' controllers ask for. Raises CannotCount."""
    scales: dict[str, int] = {}
    unmanaged = []
    asked: dict[str, None] = {}
    for pod in pods:
        ref = _controller(pod)
        if ref is None:
            unmanaged.append(pod["metadata"]["name"])
        elif ref["uid"] not in asked:
            asked[ref["uid"]] = None
            owner = _scaled_object(store, ref, pod["metadata"]["namespace"])
            if owner is None:
                raise CannotCount(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            scales[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 1)
    return sum(scales.values()), unmanaged


def _scaled_object(store: Store, ref: JSON, namespace: str) -> JSON | None:
    """The object whose replicas count for a pod of `ref`: of a ReplicaSet its Deployment, if it has one."""
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
    return next((each for each in references if each.get("controller")), None)


def _selector(budget: JSON) -> Selector:
    """An empty selector selects every pod of the namespace, none at all selects nothing."""
    selector = budget["spec"].get("selector")
    return selector_from(None if selector is None else convert(LabelSelector, selector))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
