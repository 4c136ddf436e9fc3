"""Volume resizer: expands provisioned volumes, as the CSI external-resizer and kubelets do.

The file system of a volume is expanded on the node: as soon as a pod on a node uses the claim. Source: external-resizer
pkg/controller, kubernetes pkg/volume/util/operationexecutor/node_expander.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kubeloop.devcluster.api.field_access import with_annotation, without_annotation
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from kubeloop.kube.values.quantities import parse_quantity

_RESIZE_CONDITIONS = frozenset({"Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"})
_NOT_ON_NODE = "volume.kubernetes.io/node-expansion-not-required"
_PENDING_MESSAGE = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."


def requested_expansion(claim: JSON, volume: JSON) -> str | None:
    """Return the size to which a bound claim's volume is to be expanded; None if it is not, or a node's turn."""
    status = claim.get("status") or {}
    size = claim["spec"]["resources"]["requests"]["storage"]
    if status.get("phase") != "Bound" or not _is_less((status.get("capacity") or {}).get("storage"), size):
        return None
    if (status.get("allocatedResourceStatuses") or {}).get("storage"):
        size = status["allocatedResources"]["storage"]  # an expansion that has begun ends first
        if is_pending_on_node(claim) and not _is_less(volume["spec"]["capacity"].get("storage"), size):
            return None
    return str(size)


def is_pending_on_node(claim: JSON) -> bool:
    """Return True if a node has to expand the file system of the claim's volume."""
    state = ((claim.get("status") or {}).get("allocatedResourceStatuses") or {}).get("storage")
    return state in ("NodeResizePending", "NodeResizeInProgress")


class VolumeResizer:
    """Expands volumes and file systems. Call sync() after each change of a claim, and stop() at the end."""

    def __init__(
        self, store: ObjectStore, clock: Clock, events: StoreEventRecorder, enqueue: Callable[[JSON], None]
    ) -> None:
        """enqueue: called with a claim that needs a sync because a pod uses it."""
        self._store = store
        self._clock = clock
        self._events = events
        self._enqueue = enqueue
        self._pending: set[tuple[str, str]] = set()  # (namespace, name) of claims that wait for a pod
        self._unsubscribe: Callable[[], object] | None = None  # from pods, while claims wait for one

    def sync(self, claim: JSON, volume: JSON, component: str) -> None:
        """Take the steps of an expansion that are due. volume: that of the claim. component: of the events."""
        size = requested_expansion(claim, volume)
        if size is not None:
            claim = self._expand(claim, volume, size, component)
        key = claim["metadata"]["namespace"], claim["metadata"]["name"]
        if not is_pending_on_node(claim):
            self._pending.discard(key)
        elif (pod := self._running_pod(*key)) is not None:
            self._pending.discard(key)
            self._expand_on_node(claim, pod)
        else:
            self._pending.add(key)
        self._follow_pods()

    def stop(self) -> None:
        """Ignore later changes."""
        self._pending.clear()
        self._follow_pods()

    def _expand(self, claim: JSON, volume: JSON, size: str, component: str) -> JSON:
        """Expand the volume, and leave the file system to a node; return the claim."""
        name = volume["metadata"]["name"]
        claim = update_claim_status(
            self._store,
            without_annotation(claim, _NOT_ON_NODE),
            conditions=self._conditions(claim, [{"type": "Resizing"}]),
            allocatedResources={**_status(claim, "allocatedResources"), "storage": size},
            allocatedResourceStatuses={
                **_status(claim, "allocatedResourceStatuses"),
                "storage": "ControllerResizeInProgress",
            },
        )
        self._events.record(
            claim, "Normal", "Resizing", f"External resizer is resizing volume {name}", component=component
        )
        if _is_less(volume["spec"]["capacity"].get("storage"), size):
            spec = {**volume["spec"], "capacity": {**volume["spec"]["capacity"], "storage": size}}
            self._store.update(PERSISTENT_VOLUMES, {**volume, "spec": spec})
        if claim["spec"].get("volumeMode") == "Block":
            claim = self._finish(with_annotation(claim, _NOT_ON_NODE, "true"), size)
            self._events.record(
                claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded", component=component
            )
            return claim
        pending = {"type": "FileSystemResizePending", "message": _PENDING_MESSAGE}
        claim = update_claim_status(
            self._store,
            claim,
            conditions=self._conditions(claim, [pending], keeps_others=True),
            allocatedResourceStatuses={**_status(claim, "allocatedResourceStatuses"), "storage": "NodeResizePending"},
        )
        message = "Require file system resize of volume on node"
        self._events.record(claim, "Normal", "FileSystemResizeRequired", message, component=component)
        return claim

    def _expand_on_node(self, claim: JSON, pod: JSON) -> None:
        """Expand the file system on the node of a pod."""
        volume, node = claim["spec"]["volumeName"], pod["spec"]["nodeName"]
        claim = self._finish(claim, claim["status"]["allocatedResources"]["storage"])
        message = f'MountVolume.NodeExpandVolume succeeded for volume "{volume}"  {node}'
        for obj in (pod, claim):
            self._events.record(obj, "Normal", "FileSystemResizeSuccessful", message, component="kubelet", host=node)

    def _finish(self, claim: JSON, size: str) -> JSON:
        states = {
            name: state for name, state in _status(claim, "allocatedResourceStatuses").items() if name != "storage"
        }
        return update_claim_status(
            self._store,
            claim,
            capacity={**_status(claim, "capacity"), "storage": size},
            conditions=self._conditions(claim, []),
            allocatedResourceStatuses=states,
        )

    def _conditions(self, claim: JSON, new: Sequence[JSON], *, keeps_others: bool = False) -> list[JSON]:
        """Return the claim's conditions with `new`, which are True; other resize conditions only if keeps_others."""
        now = rfc3339(self._clock.now())
        replaced = {condition["type"] for condition in new} | (set() if keeps_others else _RESIZE_CONDITIONS)
        others = [condition for condition in claim["status"].get("conditions", ()) if condition["type"] not in replaced]
        return [*others, *({"status": "True", "lastTransitionTime": now, **condition} for condition in new)]

    # --- pods -------------------------------------------------------------------------------------

    def _running_pod(self, namespace: str, claim_name: str) -> JSON | None:
        pods: Iterable[JSON] = self._store.list(PODS, namespace)
        return next((pod for pod in pods if _is_running(pod) and claim_name in claim_names(pod)), None)

    def _follow_pods(self) -> None:
        """Subscribe to pods while a claim waits for one: every change of a pod costs time."""
        if self._pending and self._unsubscribe is None:
            self._unsubscribe = self._store.subscribe(PODS, self._on_pod)
        elif not self._pending and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        if change.type == "DELETED" or not _is_running(pod):
            return
        namespace = pod["metadata"]["namespace"]
        for name in claim_names(pod):
            if (namespace, name) in self._pending:
                claim = self._store.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
                if claim is not None:
                    self._enqueue(claim)


def update_claim_status(store: ObjectStore, claim: JSON, **status: Any) -> JSON:
    """Write these fields of the claim's status, without empty ones; return the claim."""
    fields = {name: value for name, value in {**claim["status"], **status}.items() if value or name not in status}
    return store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": fields})


def _is_less(size: str | None, other: str) -> bool:
    return parse_quantity(size or "0").compare(parse_quantity(other)) < 0


def _is_running(pod: JSON) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and bool(pod["spec"].get("nodeName"))


def claim_names(pod: JSON) -> set[str]:
    """Return the names of the claims in the pod's namespace of which it has a volume."""
    volumes = pod["spec"].get("volumes") or ()
    direct = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    return direct | {f"{pod['metadata']['name']}-{volume['name']}" for volume in volumes if "ephemeral" in volume}


def _status(claim: JSON, field: str) -> JSON:
    return claim["status"].get(field) or {}
