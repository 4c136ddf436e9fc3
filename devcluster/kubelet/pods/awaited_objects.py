"""Pods that wait for ConfigMaps, Secrets and ResourceClaims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.devcluster.kubelet.containers.container_configuration import NodeFacts, configuration_error
from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.kubelet.referenced_objects import (
    Kind,
    MissingObject,
    missing_for_volumes,
    unprepared_claim,
)
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONFIG_MAPS, RESOURCE_CLAIMS, SECRETS, Resource

_REFERENCED: dict[Kind, Resource[Any]] = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "ResourceClaim": RESOURCE_CLAIMS,
}
_UNNAMED_CLAIM: tuple[Kind, str] = ("ResourceClaim", "")  # its name is missing in the status of the pod


class AwaitedObjects:
    """Objects that do not exist and for which pods wait.

    receive: is subscribed to the kinds of _REFERENCED as soon as a pod waits, until close().
    """

    def __init__(self, store: ObjectStore, events: KubeletEvents, receive: Callable[[Change], None]) -> None:
        self._store = store
        self._events = events
        self._receive = receive
        self._waiting: dict[str, SimulatedPod] = {}  # by uid
        self._unsubscribe: list[Callable[[], None]] = []

    def close(self) -> None:
        """End the subscriptions."""
        while self._unsubscribe:
            self._unsubscribe.pop()()

    def forget(self, uid: str) -> None:
        """Remove a deleted pod."""
        self._waiting.pop(uid, None)

    def wait_for_volumes(self, pod: SimulatedPod) -> bool:
        """Let the pod wait for the objects of its volumes that do not exist; return True if there are any."""
        lacks = False
        if not pod.settings.awaits_objects:
            return lacks
        for volume, missing in missing_for_volumes(pod.object, self._reader(pod)):
            lacks = True
            self._wait_for(pod, missing)
            message = f'MountVolume.SetUp failed for volume "{volume}" : {missing.message}'
            self._events.record(pod, "Warning", "FailedMount", message)
        return lacks

    def wait_for_claim(self, pod: SimulatedPod) -> bool:
        """Let the pod wait for a ResourceClaim that is allocated and reserved for it; return True if one is not."""
        missing = unprepared_claim(pod.object, self._reader(pod))
        if missing is None:
            return False
        self._wait_for(pod, missing)
        message = f"Failed to prepare dynamic resources: prepare dynamic resources: {missing.message}"
        self._events.record(pod, "Warning", "FailedPrepareDynamicResources", message)
        return True

    def configuration_error(self, pod: SimulatedPod, run: ContainerRun) -> str:
        """Return why a container cannot be configured, "" if it can; the pod waits for an object that is missing."""
        if not pod.settings.awaits_objects:
            return ""
        missing = configuration_error(pod.object, pod.container(run), self._reader(pod), lambda: _node_facts(pod))
        if missing is None:
            return ""
        if missing.kind:
            self._wait_for(pod, missing)
        return missing.message

    def has_claim_names(self, pod: SimulatedPod) -> bool:
        """Return True if the pod waits for the names of its claims, and its status has them now."""
        status = pod.object.get("status") or {}
        return _UNNAMED_CLAIM in pod.missing and bool(status.get("resourceClaimStatuses"))

    def take_waiting(self, obj: JSON) -> Iterator[SimulatedPod]:
        """Yield the pods that wait for this object; they do not wait any more."""
        metadata = obj["metadata"]
        for pod in list(self._waiting.values()):
            is_same_namespace = pod.object["metadata"]["namespace"] == metadata["namespace"]
            if is_same_namespace and (obj["kind"], metadata["name"]) in pod.missing:
                del self._waiting[pod.uid]
                yield pod

    def _reader(self, pod: SimulatedPod) -> Callable[[Kind, str], JSON | None]:
        namespace = pod.object["metadata"]["namespace"]
        return lambda kind, name: self._store.get(_REFERENCED[kind], namespace, name)

    def _wait_for(self, pod: SimulatedPod, missing: MissingObject) -> None:
        assert missing.kind
        pod.missing.add((missing.kind, missing.name))
        self._waiting[pod.uid] = pod
        if not self._unsubscribe:
            self._unsubscribe = [self._store.subscribe(resource, self._receive) for resource in _REFERENCED.values()]


def _node_facts(pod: SimulatedPod) -> NodeFacts:
    allocatable = (pod.node.object.get("status") or {}).get("allocatable") or {}
    return NodeFacts(pod.node.host_ip, pod.address, allocatable)
