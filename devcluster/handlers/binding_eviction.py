"""binding and eviction: subresources of pods whose body is another kind than the object's.

Source: pkg/registry/core/pod/storage of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.served_resources import Served, served
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.handlers.create_update import Writing
from kubeloop.devcluster.handlers.delete import Deleting
from kubeloop.devcluster.handlers.delete_options import check_delete_options, unchecked_options
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.storage.store import Store, Stored
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.objects.resources import NODES, POD_DISRUPTION_BUDGETS, PODS
from kubeloop.kube.selectors import Selector, selector_from

_MAX_DISRUPTED_PODS = 2000
_BUDGETS = served(POD_DISRUPTION_BUDGETS)


# --- binding ----------------------------------------------------------------------------------------------------------


class PodSubresources:
    """pods/binding and pods/eviction."""

    def __init__(self, store: Store, writing: Writing, deleting: Deleting, clock: Clock) -> None:
        self._store = store
        self._writing = writing
        self._deleting = deleting
        self._clock = clock

    def bind(self, name: str, namespace: str, binding: JSON, *, dry_run: bool) -> None:
        """Set the pod's node, and the condition PodScheduled. Raises StatusError."""
        node_name = _target(binding)
        if not name:
            raise errors.bad_request("Name parameter required.")
        before = self._store.table(PODS).get(f"{namespace}/{name}")
        if before is None:
            raise errors.not_found(PODS, name)
        pod, metadata = before.object, before.object["metadata"]
        given = binding.get("metadata", {})
        _check_bindable(name, pod, given)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node_name}}
        annotations = given.get("annotations") or {}
        labels = given.get("labels") or {}
        new_metadata = {**metadata}
        if annotations:
            new_metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
        if labels:
            new_metadata["labels"] = {**metadata.get("labels", {}), **labels}
        bound["metadata"] = new_metadata
        bound["status"] = _with_condition(pod["status"], rfc3339(self._clock.now()))
        bound["status"].pop("nominatedNodeName", None)  # it has served its purpose
        self._topology_labels(bound, node_name)
        if not dry_run:
            self._store.table(PODS).update(before, bound)

    def _topology_labels(self, pod: JSON, node_name: str) -> None:
        """PodTopologyLabels admission (KEP-4742): zone and region of the node become labels of the pod."""
        node = self._store.get(NODES, "", node_name)
        labels = (node or {}).get("metadata", {}).get("labels", {})
        found = {key: labels[key] for key in _TOPOLOGY if key in labels}
        if found:
            pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **found}

    # --- eviction -----------------------------------------------------------------------------------------------------

    def evict(self, served: Served, name: str, namespace: str, given: JSON) -> None:
        """Delete a pod if its PodDisruptionBudget allows it. Raises StatusError 404, 409, 422, 429, 500.

        given: metav1.DeleteOptions. They are looked at when the pod goes and its budget has counted it, as in
        Kubernetes.
        """
        before = self._store.table(PODS).get(f"{namespace}/{name}")
        if before is None:
            raise errors.not_found(PODS, name)
        options = unchecked_options(given)
        pod = before.object
        phase = pod.get("status", {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
            self._take_disruption(pod, namespace, options.dry_run)
        if not options.dry_run:
            uid, version = options.precondition_uid or None, options.precondition_resource_version or None
            told = replace(options, precondition_uid=uid, precondition_resource_version=version)
            self._deleting.check(PODS, name, pod["metadata"], told)
            before = self._mark_disrupted(before)
            if options.precondition_resource_version is not None:  # the mark is no change of anybody else's
                options = replace(options, precondition_resource_version=before.object["metadata"]["resourceVersion"])
        check_delete_options(given)
        self._deleting.delete(served, before, options)

    def _mark_disrupted(self, before: Stored) -> Stored:
        """Tell why the pod goes: the condition DisruptionTarget."""
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
        marked = {**pod, "status": {**status, "conditions": _with(status.get("conditions", ()), condition)}}
        return before if marked == pod else self._store.table(PODS).update(before, marked)

    def _take_disruption(self, pod: JSON, namespace: str, dry_run: bool) -> None:
        budgets = [
            each
            for each in self._store.list(POD_DISRUPTION_BUDGETS, namespace)
            if _selects(each["spec"].get("selector"), pod["metadata"].get("labels", {}))
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
            others = [each for each in status.get("conditions", ()) if each["type"] != "DisruptionAllowed"]
            new_status["conditions"] = [*others, condition]
        counted = {**budget, "metadata": {**budget["metadata"]}, "status": new_status}
        track_update(_BUDGETS, counted, budget, Writer("kube-apiserver"), self._writing.now, subresource="status")
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
            raise _too_many(_why_none(name, status), 0)


def _target(binding: JSON) -> str:
    """The node that a Binding names. Raises StatusError 500 with bare texts, as Kubernetes has no Status for them."""
    target = binding.get("target", {})
    causes = []
    if target.get("kind") not in ("", None, "Node"):
        text = f'Unsupported value: {quoted(target["kind"])}: supported values: "Node", "<empty>"'
        causes.append(f"target.kind: {text}")
    if not target.get("name"):
        causes.append("target.name: Required value")
    if causes:
        raise errors.internal(causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]")
    name: str = target["name"]
    return name


def _check_bindable(name: str, pod: JSON, given: JSON) -> None:
    """given: the metadata of the Binding. Raises StatusError 409."""
    metadata = pod["metadata"]
    for key, field in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if given.get(key) and given[key] != metadata[key]:
            raise errors.failed_precondition(PODS, name, field, given[key], metadata[key])
    why = ""
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{node}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise errors.conflict(PODS, name, why, subresource="binding")


def _why_none(name: str, status: JSON) -> str:
    """Why a budget allows no disruption."""
    conditions = status.get("conditions") or ()
    condition = next((each for each in conditions if each["type"] == "DisruptionAllowed"), JSON())
    told = condition.get("message", "") if condition.get("status") == "False" else ""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    none = f"The disruption budget {name} does not allow evicting pods currently"
    if told and condition["reason"] == "SyncFailed":
        return f"{none} because it failed sync: {told}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{none} ({condition['reason']}): {told}" if told else none


def _too_many(cause: str, retry_after_seconds: int) -> errors.StatusError:
    return errors.too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after_seconds=retry_after_seconds,
        causes=[{"reason": "DisruptionBudget", "message": cause}],
    )


def _budget_forbidden(name: str, why: str) -> errors.StatusError:
    """403; Kubernetes names the resource in the singular here."""
    return errors.forbidden(replace(POD_DISRUPTION_BUDGETS, plural="poddisruptionbudget"), name, why)


_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def _with_condition(status: JSON, now: str) -> JSON:
    """`status` with PodScheduled=True."""
    condition: JSON = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {**status, "conditions": _with(status.get("conditions", ()), condition)}


def _with(conditions: Iterable[JSON], condition: JSON) -> list[JSON]:
    """`condition` in the place of the one of its type; the time is that of the last change of its status."""
    result = list(conditions)
    for index, each in enumerate(result):
        if each["type"] == condition["type"]:
            if each["status"] == condition["status"]:
                condition = {**condition, "lastTransitionTime": each.get("lastTransitionTime")}
            result[index] = condition
            return result
    return [*result, condition]


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    compiled: Selector = selector_from(convert(LabelSelector, selector))
    return compiled.matches(labels)
