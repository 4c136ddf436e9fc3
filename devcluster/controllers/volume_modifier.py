"""Volume modifier: applies the VolumeAttributesClass of a bound claim to its volume, as the CSI external-resizer does.

Source: external-resizer pkg/modifycontroller.
"""

from __future__ import annotations

from kubeloop.devcluster.api.conditions import condition_of, set_condition
from kubeloop.devcluster.api.served_resources import VOLUME_ATTRIBUTES_CLASSES
from kubeloop.devcluster.controllers.volume_resizer import update_claim_status
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

_MODIFYING = "ModifyingVolume"
_CONDITIONS = frozenset({_MODIFYING, "ModifyVolumeError"})


def is_waiting_for_class(claim: JSON, name: str) -> bool:
    """Return True if a claim waits until the VolumeAttributesClass of this name exists."""
    state = ((claim.get("status") or {}).get("modifyVolumeStatus") or {}).get("status")
    return state == "Pending" and claim["spec"].get("volumeAttributesClassName") == name


class VolumeModifier:
    """Modifies volumes. Call sync() after each change of a bound claim, and when a class that it waits for exists."""

    def __init__(self, store: ObjectStore, clock: Clock, events: StoreEventRecorder) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._missing: dict[str, str] = {}  # uid of a claim -> class that does not exist, reported by an event

    def sync(self, namespace: str, name: str, component: str) -> None:
        """Modify the volume of a bound claim, if its class has changed. component: of the events."""
        claim = self._store.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        assert claim is not None
        status = claim.get("status") or {}
        requested, modification = claim["spec"].get("volumeAttributesClassName") or "", status.get("modifyVolumeStatus")
        is_modified = modification is None and requested == (status.get("currentVolumeAttributesClassName") or "")
        if status.get("phase") != "Bound" or is_modified:
            return
        target = requested
        if modification is not None and modification["status"] == "InProgress":  # begun before a restart
            target = modification["targetVolumeAttributesClassName"]
        if not target:
            self._cancel(claim, component)
        elif self._store.get(VOLUME_ATTRIBUTES_CLASSES, "", target) is None:
            self._wait_for(claim, target, component)
        else:
            self._missing.pop(claim["metadata"]["uid"], None)
            self._modify(claim, target, component)

    def _modify(self, claim: JSON, target: str, component: str) -> None:
        name, now = claim["metadata"]["name"], rfc3339(self._clock.now())
        condition = {
            "type": _MODIFYING,
            "status": "True",
            "message": f'Modifying volume to "{target}" is in progress.',
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }
        claim = update_claim_status(
            self._store,
            claim,
            conditions=set_condition(claim["status"].get("conditions", ()), condition),
            modifyVolumeStatus={"targetVolumeAttributesClassName": target, "status": "InProgress"},
        )
        message = f"external resizer is modifying volume {name} with vac {target}"
        self._events.record(claim, "Normal", "VolumeModify", message, component=component)
        volume = self._store.get(PERSISTENT_VOLUMES, "", claim["spec"]["volumeName"])
        assert volume is not None
        spec = {**volume["spec"], "volumeAttributesClassName": target}
        self._store.update(PERSISTENT_VOLUMES, {**volume, "spec": spec})
        claim = update_claim_status(
            self._store,
            claim,
            conditions=_without(claim, _CONDITIONS),
            modifyVolumeStatus=None,
            currentVolumeAttributesClassName=target,
        )
        message = f"external resizer modified volume {name} with vac {target} successfully"
        self._events.record(claim, "Normal", "VolumeModifySuccessful", message, component=component)

    def _wait_for(self, claim: JSON, target: str, component: str) -> None:
        """Set the state Pending until the class exists."""
        uid = claim["metadata"]["uid"]
        if self._missing.get(uid) != target:
            self._missing[uid] = target
            message = f'VAC "{target}" does not exist.'
            self._events.record(claim, "Warning", "VolumeModifyFailed", message, component=component)
        modification = claim["status"].get("modifyVolumeStatus") or {}
        if modification.get("status") != "Pending":
            update_claim_status(self._store, claim, modifyVolumeStatus={**modification, "status": "Pending"})

    def _cancel(self, claim: JSON, component: str) -> None:
        """Remove the condition of a modification that the user has cancelled."""
        if condition_of(claim, _MODIFYING) is not None:
            self._events.record(claim, "Normal", "VolumeModifyCanceled", "Cancelled modify.", component=component)
            update_claim_status(self._store, claim, conditions=_without(claim, {_MODIFYING}))


def _without(claim: JSON, types: frozenset[str] | set[str]) -> list[JSON]:
    return [condition for condition in claim["status"].get("conditions", ()) if condition["type"] not in types]
