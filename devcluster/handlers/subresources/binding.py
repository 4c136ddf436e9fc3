"""The binding subresource of pods: a scheduler assigns a pod to a node.

Source: pkg/registry/core/pod/storage (BindingREST) of v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import set_condition
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.validation.field_errors import quoted


class PodBinder:
    """Binds the pods of one store."""

    def __init__(self, store: ObjectStore, clock: Clock, gates: FeatureGates) -> None:
        self._store = store
        self._clears_nomination = gates.enabled("ClearingNominatedNodeNameAfterBinding")
        self._copies_labels = gates.enabled("PodTopologyLabelsAdmission")
        self._clock = clock

    def bind(self, name: str, namespace: str, binding: JSON, *, dry_run: bool) -> None:
        """Set the pod's node and the condition PodScheduled. Raises StatusError 400, 404, 409, 500."""
        node_name = _node_name(binding)
        if not name:
            raise errors.bad_request("Name parameter required.")
        before = self._store.table(PODS).get(f"{namespace}/{name}")
        if before is None:
            raise errors.not_found(PODS, name)
        pod, metadata = before.object, before.object["metadata"]
        binding_metadata = binding.get("metadata", {})
        _check_bindable(name, pod, binding_metadata, dry_run=dry_run)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node_name}}
        annotations = binding_metadata.get("annotations") or {}
        labels = binding_metadata.get("labels") or {}
        new_metadata = {**metadata}
        if annotations:
            new_metadata["annotations"] = sorted_map({**metadata.get("annotations", {}), **annotations})
        if labels and self._copies_labels:
            new_metadata["labels"] = sorted_map({**metadata.get("labels", {}), **labels})
        bound["metadata"] = new_metadata
        bound["status"] = _with_pod_scheduled(pod["status"], rfc3339(self._clock.now()))
        if self._clears_nomination:
            bound["status"].pop("nominatedNodeName", None)
        if not dry_run:
            self._store.table(PODS).update(before, bound)


def _node_name(binding: JSON) -> str:
    """Return the target node of a Binding. Raises StatusError 500: Kubernetes returns these errors without a Status."""
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


def _check_bindable(name: str, pod: JSON, binding_metadata: JSON, *, dry_run: bool) -> None:
    """Raises StatusError 409 if a precondition fails, or the pod is deleted, bound or gated."""
    metadata = pod["metadata"]
    for key, field in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if binding_metadata.get(key) and binding_metadata[key] != metadata[key]:
            expected, namespace = binding_metadata[key], metadata["namespace"]
            raise errors.failed_storage_precondition(
                PODS, namespace, name, field, expected, metadata[key], dry_run=dry_run
            )
    reason = ""
    if "deletionTimestamp" in metadata:
        reason = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node := pod["spec"].get("nodeName"):
        reason = f'pod {name} is already assigned to node "{node}"'
    elif pod["spec"].get("schedulingGates"):
        reason = f"pod {name} has non-empty .spec.schedulingGates"
    if reason:
        raise errors.conflict(PODS, name, reason, subresource="binding")


def _with_pod_scheduled(status: JSON, now: str) -> JSON:
    condition: JSON = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {**status, "conditions": set_condition(status.get("conditions", ()), condition)}
