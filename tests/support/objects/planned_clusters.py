"""Clusters for tests of plans: states as of a recording, with consistent owners."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS
from kubeloop.planning.planner import InputCluster
from kubeloop.recording.changes import ClusterState
from kubeloop.recording.projection import project

JSON = dict[str, Any]
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
CREATED = "2026-03-01T11:00:00Z"


def new_state() -> ClusterState:
    """Return a state without nodes, with the namespace shop."""
    state = ClusterState(MOMENT)
    metadata = {"name": "shop", "uid": "ns-shop", "creationTimestamp": CREATED}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {"phase": "Active"}}
    state.put(NAMESPACES, {**namespace, "spec": {"finalizers": ["kubernetes"]}})
    return state


def add_node(state: ClusterState, name: str, *, cpu: str = "4", pods: str = "110", pool: str = "", **spec: Any) -> None:
    """Add a ready node, in zone a if its name ends with an even number, else in zone b."""
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": pods}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "ab"[int(name[-1]) % 2]}
    if pool:
        labels["cloud.google.com/gke-nodepool"] = pool
    metadata = {"name": name, "uid": f"node-{name}", "creationTimestamp": CREATED, "labels": labels}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    state.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status})


def pod_template(*, cpu: str = "1", app: str = "web", **spec: Any) -> JSON:
    """Return the pod template of an application, as a user writes it."""
    container = {
        "name": "app",
        "image": f"{app}:1.4",
        "env": [{"name": "MODE", "value": "live"}],
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "metadata": {"labels": {"app": app}, "annotations": {"checksum/config": "1"}},
        "spec": {"containers": [container], **spec},
    }


def deployment(name: str = "web", *, replicas: int = 2, template: JSON | None = None, **spec: Any) -> JSON:
    """Return a Deployment as a user writes it."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template or pod_template(app=name),
            **spec,
        },
    }


def add_deployment(
    state: ClusterState, manifest: JSON, nodes: list[str], *, ready_seconds: int = 10, annotations: JSON | None = None
) -> None:
    """Add a Deployment that was applied before, its ReplicaSet, and a running pod on each of the nodes."""
    name, template = manifest["metadata"]["name"], manifest["spec"]["template"]
    hashed = {"app": name, "pod-template-hash": "5d4"}
    counts = {"replicas": len(nodes), "readyReplicas": len(nodes), "availableReplicas": len(nodes)}
    _put(state, DEPLOYMENTS, {
        **manifest,
        "metadata": _metadata(name, None, {}, annotations),
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, **manifest["spec"],
            "template": {**template, "spec": _defaulted(template["spec"])},
        },
        "status": {**counts, "updatedReplicas": len(nodes), "observedGeneration": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastUpdateTime": CREATED},
        ]},
    })  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"uid-{name}", "controller": True}
    revision = {"deployment.kubernetes.io/revision": "1"}
    _put(state, REPLICA_SETS, {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(f"{name}-5d4", owner, hashed, revision),
        "spec": {
            "replicas": len(nodes),
            "selector": {"matchLabels": hashed},
            "template": {
                "metadata": {**template["metadata"], "labels": hashed}, "spec": _defaulted(template["spec"]),
            },
        },
        "status": {**counts, "observedGeneration": 1},
    })  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-5d4", "uid": f"uid-{name}-5d4"}
    for number, node in enumerate(nodes):
        metadata = _metadata(f"{name}-5d4-{number}", {**owner, "controller": True}, hashed)
        add_pod(state, metadata, template["spec"], node, ready_seconds=ready_seconds)


def _defaulted(spec: JSON) -> JSON:
    """Return a pod spec as the API server stores it."""
    return {**_DEFAULTS, **spec, "containers": [{**_CONTAINER_DEFAULTS, **item} for item in spec["containers"]]}


_CONTAINER_DEFAULTS: JSON = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_DEFAULTS: JSON = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}


def add_pod(state: ClusterState, metadata: JSON, spec: JSON, node: str, *, ready_seconds: int = 10) -> None:
    """Add a running pod; "" for node: one that is pending."""
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": f"2026-03-01T11:00:{ready_seconds:02}Z"},
    ]
    statuses = [
        {"name": container["name"], "ready": True, "restartCount": 0, "state": {"running": {"startedAt": CREATED}}}
        for container in spec["containers"]
    ]
    status: JSON = {"phase": "Pending"}
    if node:
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses, "startTime": CREATED}
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {**_defaulted(spec), **({"nodeName": node} if node else {})}, "status": status,
    }  # fmt: skip
    _put(state, PODS, body)


def bare_pod(name: str) -> JSON:
    """Return the metadata of a pod without a controller."""
    return _metadata(name, None, {"app": name})


def _metadata(name: str, owner: JSON | None, labels: JSON, annotations: JSON | None = None) -> JSON:
    metadata: JSON = {
        "name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1, "creationTimestamp": CREATED,
        "labels": labels,
    }  # fmt: skip
    if owner:
        metadata["ownerReferences"] = [owner]
    if annotations:
        metadata["annotations"] = annotations
    return metadata


def _put(state: ClusterState, resource: Any, obj: JSON) -> None:
    """Put the object as `kubeloop record` records it."""
    state.put(resource, project(resource.kind, obj))


def cluster(state: ClusterState) -> InputCluster:
    """Return the state as the input of a plan."""
    return InputCluster("cluster.kubeloop", state, [], is_projected=True)
