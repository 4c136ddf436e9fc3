"""Which Pods the Pod garbage collector deletes.

Pure functions of Pods and Nodes. Source: pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.kube.objects.object_fields import condition_of, is_finished

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

_BEGINNING = datetime.min.replace(tzinfo=UTC)


def surplus_terminated_pods(pods: Iterable[Pod], threshold: int) -> list[Pod]:
    """Return the finished Pods to delete so that `threshold` are left: evicted ones first, then the oldest.

    A threshold of 0 or less is no limit.
    """
    if threshold <= 0:
        return []
    terminated = [pod for pod in pods if is_finished(pod)]
    surplus = len(terminated) - threshold
    if surplus <= 0:
        return []
    return sorted(terminated, key=_evicted_and_oldest_first)[:surplus]


def _evicted_and_oldest_first(pod: Pod) -> tuple[bool, datetime, str]:
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creation_timestamp or _BEGINNING, pod.metadata.name


def pods_on_out_of_service_nodes(pods: Iterable[Pod], node: Callable[[str], Node | None]) -> list[Pod]:
    """Return the terminating Pods whose node is not ready and has the taint out-of-service: no kubelet will confirm
    their end."""
    selected = [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is not None
        and (on := node(pod.spec.node_name)) is not None
        and is_out_of_service(on)
    ]
    return sorted(selected, key=_evicted_and_oldest_first)


def is_out_of_service(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return (ready is None or ready.status != "True") and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def unscheduled_terminating_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the terminating Pods that were never bound, so that no kubelet will remove them."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name]
