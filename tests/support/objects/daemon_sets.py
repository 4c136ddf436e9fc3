"""DaemonSets, nodes and pods for tests, as typed objects and as manifests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kubeloop.controllers.daemonset.daemon_pods import REVISION_LABEL, Eligibility
from kubeloop.controllers.daemonset.node_states import NodeState, Revision
from kubeloop.kube.objects.api_types import DaemonSet, Node, Pod, convert

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEW = Revision("new", None, 0)
LABELS = {"app": "agent"}


def daemon_set_body(name: str = "agent", *, image: str = "agent:1", pod: JSON | None = None, **spec: Any) -> JSON:
    """Return a manifest. pod: other fields of the pod template's spec; spec: other fields of the DaemonSet's."""
    containers = [{"name": "c", "image": image}]
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **(pod or {})}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def daemon_set(*, annotations: dict[str, str] | None = None, **options: Any) -> DaemonSet:
    """Return a DaemonSet with the options of `daemon_set_body`."""
    body = daemon_set_body(**options)
    body["metadata"] |= {"uid": "u", "generation": 1, "annotations": annotations or {}}
    return convert(DaemonSet, body)


def rolling_update(**limits: Any) -> JSON:
    """Return the fields `updateStrategy` of a spec. limits: maxSurge, maxUnavailable."""
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": limits}}


def node(name: str = "node-0", *, labels: dict[str, str] | None = None, taints: list[JSON] | None = None) -> Node:
    return convert(Node, {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}})


def pod(
    name: str,
    revision: str = "new",
    *,
    ready: bool = True,
    phase: str = "Running",
    deleted: bool = False,
    ready_seconds: float = 60.0,
    age_seconds: float = 100.0,
    node: str = "node-0",
) -> Pod:
    """Return a pod of a DaemonSet. ready_seconds: time since it became ready. node: "" if it is not bound."""
    metadata: JSON = {"name": name, "namespace": "ns", "labels": LABELS | {REVISION_LABEL: revision}}
    metadata["creationTimestamp"] = (NOW - timedelta(seconds=age_seconds)).isoformat()
    if deleted:
        metadata["deletionTimestamp"] = NOW.isoformat()
    since = (NOW - timedelta(seconds=ready_seconds)).isoformat()
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    status = {"phase": phase, "conditions": [condition]}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node}, "status": status})


def state(name: str, *pods: Pod, runs: bool = True, continues: bool = True, exists: bool = True) -> NodeState:
    """Return the state of a node."""
    return NodeState(name, Eligibility(runs, continues), pods, exists)
