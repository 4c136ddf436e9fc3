"""The eviction subresource of pods: delete a pod if its PodDisruptionBudget allows it.

Source: pkg/registry/core/pod/storage/eviction.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import is_true, set_condition
from kubeloop.devcluster.api.served_resources import ServedResource, get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.handlers.writing.delete import ObjectDeleter
from kubeloop.devcluster.handlers.writing.delete_options import check_delete_options, unchecked_options
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.storage.store import ObjectStore, StoredObject, object_key
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.objects.resources import POD_DISRUPTION_BUDGETS, PODS
from kubeloop.kube.selectors.selectors import Selector, selector_from

_MAX_DISRUPTED_PODS = 2000
_BUDGETS = get_served_resource(POD_DISRUPTION_BUDGETS)


class PodEvictor:
    """Evicts the pods of one store."""

    def __init__(self, store: ObjectStore, deleter: ObjectDeleter, clock: Clock) -> None:
        self._store = store
        self._deleter = deleter
        self._clock = clock

    async def evict(self, served: ServedResource, name: str, namespace: str, options_document: JSON) -> None:
        """Delete a pod if its PodDisruptionBudget allows it. Raises StatusError 404, 409, 422, 429, 500.

        options_document: metav1.DeleteOptions. Its values are validated after the budget has counted the eviction, as
        in Kubernetes.
        """
        table, key = self._store.table(PODS), object_key(namespace, name)
        if (before := table.get(key)) is None:
            raise errors.not_found(PODS, name)
        options = unchecked_options(options_document)
        pod = before.object
        phase = pod.get("status", {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
            self._take_disruption(pod, namespace, options.dry_run)
        if not options.dry_run:
            uid, version = options.precondition_uid or None, options.precondition_resource_version or None
            preconditions = replace(options, precondition_uid=uid, precondition_resource_version=version)
            self._deleter.check(PODS, name, pod["metadata"], preconditions)
            before = self._mark_disrupted(before)
            if options.precondition_resource_version is not None:  # the server's own update must not violate it
                options = replace(options, precondition_resource_version=before.object["metadata"]["resourceVersion"])
        check_delete_options(options_document)
        if (removal := self._deleter.delete(served, before, options).removal) is not None:
            await self._deleter.until_mark_is_seen(served, before)
            if (marked := table.get(key)) is not None and marked.object["metadata"]["uid"] == pod["metadata"]["uid"]:
                self._deleter.delete(served, marked, removal)

    def _mark_disrupted(self, before: StoredObject) -> StoredObject:
        """Set the condition DisruptionTarget, so that controllers see why the pod is deleted."""
        pod = before.object
        status = pod.get("status", {})
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._clock.now()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        marked = {**pod, "status": {**status, "conditions": set_condition(status.get("conditions", ()), condition)}}
        return before if marked == pod else self._store.table(PODS).update(before, marked)

    def _take_disruption(self, pod: JSON, namespace: str, dry_run: bool) -> None:
        """Count the eviction in the pod's budget, if there is one. Raises StatusError 403, 429, 500."""
        budgets = [
            budget
            for budget in self._store.list(POD_DISRUPTION_BUDGETS, namespace)
            if _selects(budget["spec"].get("selector"), pod["metadata"].get("labels", {}))
        ]
        name = pod["metadata"]["name"]
        if len(budgets) > 1:
            raise errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        if not budgets:
            return
        budget = budgets[0]
        status = budget.get("status", {})
        if not is_true(pod, "Ready"):
            healthy = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
            if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy:
                return
        self._check_budget(budget, status)
        if dry_run:
            return
        now = rfc3339(self._clock.now())
        disrupted = status.get("disruptedPods", {})
        allowed = status["disruptionsAllowed"] - 1
        new_status = {**status, "disruptionsAllowed": allowed, "disruptedPods": {**disrupted, name: now}}
        if allowed == 0:
            condition = {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": status.get("observedGeneration", 0),
                "lastTransitionTime": now,
                "reason": "InsufficientPods",
                "message": "",
            }
            others = [other for other in status.get("conditions", ()) if other["type"] != "DisruptionAllowed"]
            new_status["conditions"] = [*others, condition]
        counted = {**budget, "metadata": {**budget["metadata"]}, "status": new_status}
        track_update(_BUDGETS, counted, budget, Writer("kube-apiserver"), lambda: now, subresource="status")
        self._store.update(POD_DISRUPTION_BUDGETS, counted)

    @staticmethod
    def _check_budget(budget: JSON, status: JSON) -> None:
        """Raises StatusError 403, 429 if the budget allows no disruption."""
        name = budget["metadata"]["name"]
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            raise _too_many(f"The disruption budget {name} is still being processed by the server.", 10)
        allowed = status.get("disruptionsAllowed", 0)
        if allowed < 0:
            raise _budget_forbidden(name, "pdb disruptions allowed is negative")
        if len(status.get("disruptedPods", {})) > _MAX_DISRUPTED_PODS:
            raise _budget_forbidden(
                name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            )
        if not allowed:
            raise _too_many(_no_disruption_message(name, status), 0)


def _no_disruption_message(name: str, status: JSON) -> str:
    """Return the message for a budget that allows no disruption."""
    conditions = status.get("conditions") or ()
    condition = next((condition for condition in conditions if condition["type"] == "DisruptionAllowed"), JSON())
    message = condition.get("message", "") if condition.get("status") == "False" else ""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    none = f"The disruption budget {name} does not allow evicting pods currently"
    if message and condition["reason"] == "SyncFailed":
        return f"{none} because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{none} ({condition['reason']}): {message}" if message else none


def _too_many(cause: str, retry_after_seconds: int) -> errors.StatusError:
    return errors.too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after_seconds=retry_after_seconds,
        causes=[{"reason": "DisruptionBudget", "message": cause}],
    )


def _budget_forbidden(name: str, message: str) -> errors.StatusError:
    """403; Kubernetes names the resource in the singular here."""
    return errors.forbidden(replace(POD_DISRUPTION_BUDGETS, plural="poddisruptionbudget"), name, message)


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    compiled: Selector = selector_from(convert(LabelSelector, selector))
    return compiled.matches(labels)
