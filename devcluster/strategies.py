"""What each kind's strategy does to an object on its way into the store: fields that clients may not set.

Source: the strategies under pkg/registry of Kubernetes v1.36. Objects have been decoded and defaulted; they are the
request's own, so they are changed in place. Deciding functions only: the server owns allocation and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.devcluster import stored_kinds
from kubeloop.devcluster.label_keys import merge_label_keys
from kubeloop.devcluster.registry import Served
from kubeloop.kube.quantity import parse_quantity

JSON = dict[str, Any]
Prepare = Callable[[JSON, str], None]
PrepareUpdate = Callable[[JSON, JSON], None]


def qos_class(spec: JSON) -> str:
    """Guaranteed, Burstable or BestEffort. Source: pkg/apis/core/helper/qos."""
    pod_level = spec.get("resources") or {}
    if pod_level.get("requests") or pod_level.get("limits"):
        parts = [pod_level]
    else:
        parts = [
            each.get("resources") or {} for each in (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
        ]
    compute = ("cpu", "memory")
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    for part in parts:
        limited = set()
        for name, amount in (part.get("requests") or {}).items():
            if name in compute and parse_quantity(amount).compare(parse_quantity(0)) > 0:
                requests[name] = requests.get(name, parse_quantity(0)) + parse_quantity(amount)
        for name, amount in (part.get("limits") or {}).items():
            if name in compute and parse_quantity(amount).compare(parse_quantity(0)) > 0:
                limited.add(name)
                limits[name] = limits.get(name, parse_quantity(0)) + parse_quantity(amount)
        guaranteed = guaranteed and limited == set(compute)
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(name in limits and limits[name].compare(amount) == 0 for name, amount in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"


# --- create -----------------------------------------------------------------------------------------------------------


def _create_pod(pod: JSON, now: str) -> None:
    pod["metadata"]["generation"] = 1
    if pod["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        pod["spec"]["terminationGracePeriodSeconds"] = 1
    merge_label_keys(pod)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _create_namespace(namespace: JSON, _now: str) -> None:
    namespace["status"] = {"phase": "Active"}
    spec = namespace.setdefault("spec", {})
    if "kubernetes" not in spec.get("finalizers", ()):
        spec["finalizers"] = [*spec.get("finalizers", ()), "kubernetes"]


def _create_volume(phase: str) -> Prepare:
    def create(obj: JSON, now: str) -> None:
        obj["status"] = {"phase": phase}
        if obj.get("kind") == "PersistentVolume":
            obj["status"]["lastPhaseTransitionTime"] = now

    return create


def _keep_status(_obj: JSON, _now: str) -> None:
    """The client may set it, as kubelets do."""


_CREATE: dict[str, Prepare] = {
    "pods": _create_pod,
    "namespaces": _create_namespace,
    "persistentvolumes": _create_volume("Pending"),
    "persistentvolumeclaims": _create_volume("Pending"),
    "nodes": _keep_status,
    **stored_kinds.CREATE,
}


def prepare_for_create(served: Served, obj: JSON, now: str) -> None:
    """Reset what a client may not set, and set what only the server does. `now` as it stands in objects."""
    name = served.resource.group_resource
    create = _CREATE.get(name)
    if create is not None:
        create(obj, now)
    elif served.has_status:
        obj["status"] = dict(served.empty_status)
    metadata = obj["metadata"]
    if served.generation:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)


# --- update -----------------------------------------------------------------------------------------------------------


def _update_pod(pod: JSON, old: JSON) -> None:
    """What admission has given a pod stays, though the update leaves it out. Source: admission/priority."""
    for name in ("priority", "preemptionPolicy"):
        if name in old["spec"]:
            pod["spec"].setdefault(name, old["spec"][name])


def _update_namespace(namespace: JSON, old: JSON) -> None:
    namespace["spec"] = old.get("spec", {})


def _update_service(service: JSON, old: JSON) -> None:
    spec, before = service["spec"], old["spec"]
    if spec.get("type") == "ExternalName":
        return
    if "clusterIP" not in spec and before.get("clusterIP"):
        spec["clusterIP"] = before["clusterIP"]
        spec.setdefault("clusterIPs", before.get("clusterIPs", [before["clusterIP"]]))
    for name in ("ipFamilies", "ipFamilyPolicy"):
        if name in before:
            spec.setdefault(name, before[name])
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        taken = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            known = taken.get((port.get("port"), port.get("protocol")))
            if "nodePort" not in port and known:
                port["nodePort"] = known


_UPDATE: dict[str, PrepareUpdate] = {
    "pods": _update_pod,
    "namespaces": _update_namespace,
    "services": _update_service,
}

_SERVER_OWNED = ("generation", "selfLink", "creationTimestamp")
_KEPT_IF_LEFT_OUT = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def prepare_for_update(served: Served, obj: JSON, old: JSON) -> None:
    """Keep what a client may not change through the main resource: status, and the server's part of metadata."""
    metadata, before = obj["metadata"], old["metadata"]
    for name in _SERVER_OWNED:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    for name in _KEPT_IF_LEFT_OUT:
        if name in before:
            metadata.setdefault(name, before[name])
    if served.has_status:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
    update = _UPDATE.get(served.resource.group_resource)
    if update is not None:
        update(obj, old)
    name = served.resource.group_resource
    annotated = name == "deployments.apps" and metadata.get("annotations") != before.get("annotations")
    if annotated or any(obj.get(each) != old.get(each) for each in served.generation):
        metadata["generation"] = before.get("generation", 0) + 1


def prepare_for_status_update(served: Served, obj: JSON, old: JSON, part: str = "status") -> JSON:
    """What a write to the status subresource stores: the old object with the new status. (finalize: with the new spec.)

    Deployments, ReplicaSets and ReplicationControllers keep metadata.annotations (and labels) of the request, too, as
    v1.36 lets them; all others take the request's labels, annotations, owner references and finalizers as well.
    """
    if part == "approval":
        return stored_kinds.approved(obj, old)
    result = dict(old)
    written = "spec" if part == "finalize" else "status"
    if written in obj:
        result[written] = obj[written]
    else:
        result.pop(written, None)
    metadata = dict(old["metadata"])
    for name in _STATUS_METADATA.get(served.resource.group_resource, _ALL_OPEN):
        if name in obj["metadata"]:
            metadata[name] = obj["metadata"][name]
        else:
            metadata.pop(name, None)
    result["metadata"] = metadata
    if served.resource.group_resource == "pods" and written == "status":
        result["status"] = _with_what_a_pod_status_keeps(result.get("status") or {}, old.get("status") or {})
    return result


def _with_what_a_pod_status_keeps(status: JSON, old: JSON) -> JSON:
    """qosClass, and observedGeneration of the status and of its conditions, stay where the request leaves them out.

    Source: podStatusStrategy.PrepareForUpdate.
    """
    status = {**status}
    for name in ("qosClass", "observedGeneration"):
        if not status.get(name) and old.get(name):
            status[name] = old[name]
    before: dict[str, list[int]] = {}  # by type: validation lets a type stand more than once
    for condition in old.get("conditions") or ():
        before.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    if status.get("conditions"):
        conditions = [{**condition} for condition in status["conditions"]]
        for condition in conditions:
            generations = before.get(condition.get("type", ""))
            generation = generations.pop(0) if generations else 0
            if generation and not condition.get("observedGeneration"):
                condition["observedGeneration"] = generation
        status["conditions"] = conditions
    return status


_ALL_OPEN = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_STATUS_METADATA: dict[str, tuple[str, ...]] = {
    # pod status: ownerReferences stay as they are; deployments: labels stay as they are
    "pods": ("labels", "annotations", "finalizers", "managedFields"),
    "deployments.apps": ("annotations", "finalizers", "ownerReferences", "managedFields"),
}
