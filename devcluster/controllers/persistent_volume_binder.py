"""Persistent volume controllers: bind claims to volumes, provision, protect and reclaim volumes.

Implements kube-controller-manager's persistentvolume-binder, persistentvolumeclaim- and persistentvolume-protection and
ephemeral-volume, and the provisioner of every StorageClass, which creates volumes at once. Level-triggered: a change in
the store queues the affected claims and volumes, and each sync advances one of them by a step. Unlike in Kubernetes, a
pending claim does not wait up to 15 s for the next sync.

    claim    Pending --a volume names it, or fits, or is provisioned--> Bound --volume deleted--> Lost
    volume   Available --claimRef and claim agree--> Bound --claim deleted--> Released --policy Delete--> deleted
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.controllers.volume_matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    annotations_of,
    best_match,
    claims_of_pod,
    class_of,
    is_bound_to,
    key_of,
    mismatch_message,
    phase_of,
)
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Resource,
)
from kubeloop.kube.uids import new_uid

log = logging.getLogger(__name__)

DEFAULT_CLASS = "standard"
PROVISIONER = "kubeloop.dev/simulated"

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_STORAGE_PROVISIONER = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
_CLAIM_IN_USE = "kubernetes.io/pvc-protection"
_VOLUME_IN_USE = "kubernetes.io/pv-protection"
_BINDER = "persistentvolume-controller"
_BATCH = 50  # objects per turn of the event loop


class PersistentVolumeController:
    """The controllers of persistent volumes. Call run() once; register() may be called before it."""

    def __init__(self, store: ObjectStore, *, clock: Clock, rng: random.Random, only_own: bool = False) -> None:
        """only_own: ignore classes of other provisioners."""
        self._only_own = only_own
        self._store = store
        self._clock = clock
        self._rng = rng
        self._events = StoreEventRecorder(store, clock=clock, rng=rng)
        self._admission = AdmissionChain(store)
        self._dirty: dict[tuple[str, str], None] = {}  # (kind, key) to sync, oldest first
        self._users: dict[str, dict[str, JSON]] = {}  # claim key -> pod uid -> pod
        self._claims_used: dict[str, tuple[str, ...]] = {}  # pod uid -> claim keys
        self._free: dict[str, dict[str, None]] = {}  # class -> names of volumes without claimRef
        self._named: dict[str, dict[str, None]] = {}  # claim key -> names of volumes with a claimRef to it
        self._pending_claims: dict[str, dict[str, None]] = {}  # class, or "volume/" and a name -> pending claims
        self._last_events: dict[str, tuple[str, str]] = {}  # uid -> reason and message of its last event
        self._wake = asyncio.Event()

    # --- lifecycle --------------------------------------------------------------------------------

    def register(self) -> None:
        """Create the default StorageClass if there is no class of its name."""
        if self._store.get(STORAGE_CLASSES, "", DEFAULT_CLASS) is None:
            metadata = {
                "name": DEFAULT_CLASS,
                "uid": new_uid(self._rng),
                "creationTimestamp": self._wall(),
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            }
            storage_class = {
                "kind": "StorageClass",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": metadata,
                "provisioner": PROVISIONER,
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self._store.create(STORAGE_CLASSES, storage_class)

    async def run(self) -> None:
        """Bind, provision and clean up until cancelled."""
        self.register()
        watched = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, PODS)
        unsubscribe = [self._store.subscribe(resource, self._receive) for resource in watched]
        try:
            for volume in self._store.list(PERSISTENT_VOLUMES):
                self._index_volume(None, volume)
                self._enqueue("PersistentVolume", key_of(volume))
            for pod in self._store.list(PODS):
                self._index_pod(pod)
            for claim in self._store.list(PERSISTENT_VOLUME_CLAIMS):
                self._enqueue("PersistentVolumeClaim", key_of(claim))
            done = 0
            while True:
                while self._dirty:
                    kind, key = next(iter(self._dirty))
                    del self._dirty[kind, key]
                    self._sync(kind, key)
                    done += 1
                    if done % _BATCH == 0:
                        await asyncio.sleep(0)
                self._wake.clear()
                await self._wake.wait()
        finally:
            for stop in unsubscribe:
                stop()

    def _sync(self, kind: str, key: str) -> None:
        """Sync one object; an error must not stop the others."""
        try:
            if kind == "PersistentVolumeClaim":
                self._sync_claim(key)
            elif kind == "PersistentVolume":
                self._sync_volume(key)
            else:
                self._create_ephemeral_claims(key)
        except Exception:
            log.exception("failed to sync a volume or claim", extra={"kind": kind, "key": key})

    def _enqueue(self, kind: str, key: str) -> None:
        self._dirty[kind, key] = None
        self._wake.set()

    def _receive(self, change: Change) -> None:
        obj, before = change.now.object, change.before.object if change.before is not None else None
        deleted = change.type == "DELETED"
        if deleted:
            self._last_events.pop(obj["metadata"]["uid"], None)
        match obj["kind"]:
            case "Pod":
                if obj["spec"].get("volumes"):
                    self._index_pod(obj, deleted=deleted)
            case "PersistentVolumeClaim":
                self._enqueue("PersistentVolumeClaim", key_of(obj))
                for name in (obj["spec"].get("volumeName"), *self._named.get(key_of(obj), ())):
                    if name:
                        self._enqueue("PersistentVolume", name)
            case "PersistentVolume":
                self._index_volume(before, None if deleted else obj)
                self._enqueue("PersistentVolume", key_of(obj))
            case "StorageClass":
                self._wake_claims(obj["metadata"]["name"])

    def _index_pod(self, pod: JSON, *, deleted: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        uses = dict(claims_of_pod(pod))
        if uid not in self._claims_used and uses:
            self._claims_used[uid] = tuple(uses)
            if any(uses.values()):
                self._enqueue("Pod", key_of(pod))
        for key in uses:
            if deleted:
                self._users.get(key, {}).pop(uid, None)
                if not self._users.get(key):
                    self._users.pop(key, None)
            else:
                self._users.setdefault(key, {})[uid] = pod
            self._enqueue("PersistentVolumeClaim", key)
        if deleted:
            self._claims_used.pop(uid, None)

    def _index_volume(self, before: JSON | None, now: JSON | None) -> None:
        for volume, present in ((before, False), (now, True)):
            if volume is None:
                continue
            name, ref = volume["metadata"]["name"], volume["spec"].get("claimRef")
            where, at = (self._named, _ref_key(ref)) if ref else (self._free, class_of(volume))
            if present:
                where.setdefault(at, {})[name] = None
            else:
                where.get(at, {}).pop(name, None)
                if not where.get(at):
                    where.pop(at, None)
            if ref:
                self._enqueue("PersistentVolumeClaim", _ref_key(ref))
            elif present:
                self._wake_claims(class_of(volume))
            self._wake_claims(f"volume/{name}")

    def _wake_claims(self, waiting_for: str) -> None:
        for key in self._pending_claims.pop(waiting_for, ()):
            self._enqueue("PersistentVolumeClaim", key)

    # --- claims -----------------------------------------------------------------------------------

    def _sync_claim(self, key: str) -> None:
        claim = self._claim(key)
        if claim is None:
            return
        if "deletionTimestamp" in claim["metadata"] and not self._in_use(claim):
            self._release(PERSISTENT_VOLUME_CLAIMS, claim, _CLAIM_IN_USE)
            return
        if BIND_COMPLETED in annotations_of(claim):
            self._sync_bound(claim)
        elif "deletionTimestamp" not in claim["metadata"]:
            self._sync_unbound(claim)

    def _sync_bound(self, claim: JSON) -> None:
        name = claim["spec"].get("volumeName")
        if not name:
            text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            self._mark_lost(claim, "ClaimLost", text)
            return
        volume = self._store.get(PERSISTENT_VOLUMES, "", name)
        if volume is None:
            self._wait_for(f"volume/{name}", claim)
            self._mark_lost(
                claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            )
        elif not volume["spec"].get("claimRef") or is_bound_to(volume, claim):
            self._bind(volume, claim)
        else:
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._mark_lost(claim, "ClaimMisbound", text)

    def _sync_unbound(self, claim: JSON) -> None:
        name = claim["spec"].get("volumeName")
        if name:
            self._bind_named_volume(claim, name)
            return
        storage_class = self._store.get(STORAGE_CLASSES, "", class_of(claim)) if class_of(claim) else None
        delayed = storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        names = (*self._named.get(key_of(claim), ()), *(() if delayed else self._free.get(class_of(claim), ())))
        volumes = [self._store.get(PERSISTENT_VOLUMES, "", name) for name in names]
        volume = best_match(claim, [candidate for candidate in volumes if candidate is not None], delayed=delayed)
        if volume is not None:
            self._bind(volume, claim)
            return
        self._wait_for(class_of(claim), claim)
        claim = self._write_claim_status(claim, {"phase": "Pending"})
        if delayed and SELECTED_NODE not in annotations_of(claim):
            self._record_event(claim, "Normal", *self._waits_for(claim))
        elif storage_class is not None:
            self._provision(claim, storage_class, delayed=delayed)
        elif class_of(claim):
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self._record_event(claim, "Warning", "ProvisioningFailed", text)
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._record_event(claim, "Normal", "FailedBinding", text)

    def _bind_named_volume(self, claim: JSON, name: str) -> None:
        """Bind a claim to the volume that its spec names."""
        volume = self._store.get(PERSISTENT_VOLUMES, "", name)
        if volume is not None and is_bound_to(volume, claim):
            self._bind(volume, claim)
            return
        self._wait_for(f"volume/{name}", claim)
        if volume is None:
            self._write_claim_status(claim, {"phase": "Pending"})
        elif volume["spec"].get("claimRef"):
            claim = self._write_claim_status(claim, {"phase": "Pending"})
            self._record_event(
                claim, "Warning", "FailedBinding", f'volume "{name}" already bound to a different claim.'
            )
        else:
            problem = mismatch_message(volume, claim)
            if not problem:
                self._bind(volume, claim)
                return
            claim = self._write_claim_status(claim, {"phase": "Pending"})
            self._record_event(
                claim, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {problem}'
            )

    def _waits_for(self, claim: JSON) -> tuple[str, str]:
        pods = [
            pod["metadata"]["name"]
            for pod in self._users.get(key_of(claim), {}).values()
            if phase_of(pod) not in ("Succeeded", "Failed")
        ]
        if not pods:
            return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        if len(pods) == 1:
            return "WaitForPodScheduled", f"waiting for pod {pods[0]} to be scheduled"
        return "WaitForPodScheduled", f"waiting for pods {','.join(pods)} to be scheduled"

    def _bind(self, volume: JSON, claim: JSON) -> None:
        """Bind a volume and a claim to each other; idempotent."""
        metadata, ref = claim["metadata"], volume["spec"].get("claimRef")
        if not ref or ref.get("uid") != metadata["uid"]:
            volume = {**volume, "spec": {**volume["spec"], "claimRef": _claim_ref(claim)}}
            if not ref:
                volume = _annotated(volume, {BOUND_BY_CONTROLLER: "yes"})
        volume = self._update(PERSISTENT_VOLUMES, self._in_phase(volume, "Bound"))
        added = {} if BIND_COMPLETED in annotations_of(claim) else {BIND_COMPLETED: "yes"}
        if claim["spec"].get("volumeName") != volume["metadata"]["name"]:
            claim = {**claim, "spec": {**claim["spec"], "volumeName": volume["metadata"]["name"]}}
            added[BOUND_BY_CONTROLLER] = "yes"
        if added:
            claim = self._update(PERSISTENT_VOLUME_CLAIMS, _annotated(claim, added))
        status = {"phase": "Bound", "accessModes": volume["spec"].get("accessModes") or []}
        known = (claim.get("status") or {}).get("capacity")
        # once bound, the capacity is the file system's, which the node resizes
        capacity = known if known and phase_of(claim) == "Bound" else volume["spec"].get("capacity") or {}
        self._write_claim_status(claim, {**status, "capacity": capacity})

    def _mark_lost(self, claim: JSON, reason: str, message: str) -> None:
        if phase_of(claim) != "Lost":
            claim = self._write_claim_status(claim, {"phase": "Lost"})
            self._record_event(claim, "Warning", reason, message)

    def _in_use(self, claim: JSON) -> bool:
        """Return True if a scheduled pod uses the claim. Pods are not scheduled for a claim in deletion."""
        key = key_of(claim)
        for pod in self._users.get(key, {}).values():
            stopped = "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("deletionGracePeriodSeconds")
            # a pod may wait for the deletion of an earlier ephemeral claim
            if pod["spec"].get("nodeName") and not (stopped and dict(claims_of_pod(pod)).get(key)):
                return True
        return False

    def _create_ephemeral_claims(self, key: str) -> None:
        """Create the claims of a pod's generic ephemeral volumes; the garbage collector deletes them with the pod."""
        namespace, name = key.split("/")
        pod = self._store.get(PODS, namespace, name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name,
            "uid": pod["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for claim_key, source in claims_of_pod(pod):
            if source is None or self._claim(claim_key) is not None:
                continue
            template = source["volumeClaimTemplate"]
            template_metadata = template.get("metadata") or {}
            metadata: JSON = {
                "name": claim_key.split("/")[1],
                "namespace": namespace,
                "uid": new_uid(self._rng),
                "creationTimestamp": self._wall(),
                **{
                    field: template_metadata[field]
                    for field in ("labels", "annotations")
                    if template_metadata.get(field)
                },
                "ownerReferences": [owner],
            }
            claim = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "metadata": metadata,
                "spec": dict(template["spec"]),
                "status": {"phase": "Pending"},
            }
            apply_defaults(PERSISTENT_VOLUME_CLAIMS, claim)
            self._admission.admit_create(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
            self._store.create(PERSISTENT_VOLUME_CLAIMS, claim)

    # --- provisioning -----------------------------------------------------------------------------

    def _provision(self, claim: JSON, storage_class: JSON, *, delayed: bool) -> None:
        """Create a volume for the claim, as the provisioner of its class would."""
        provisioner: str = storage_class["provisioner"]
        if provisioner == _NO_PROVISIONER:
            text = f"no volume plugin matched name: {provisioner}"
            self._record_event(claim, "Warning", "ProvisioningFailed", text)
            return
        name = f"pvc-{claim['metadata']['uid']}"
        if self._store.get(PERSISTENT_VOLUMES, "", name) is not None:
            return
        node = None
        if delayed:
            selected = annotations_of(claim)[SELECTED_NODE]
            node = self._store.get(NODES, "", selected)
            if node is None:
                # without the annotation the scheduler selects a node again
                text = f'failed to get target node: node "{selected}" not found'
                self._record_event(claim, "Warning", "ProvisioningFailed", text, component=provisioner)
                self._update(PERSISTENT_VOLUME_CLAIMS, _without_annotation(claim, SELECTED_NODE))
                return
        claim = self._update(
            PERSISTENT_VOLUME_CLAIMS, _annotated(claim, dict.fromkeys(_STORAGE_PROVISIONER, provisioner))
        )
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._record_event(claim, "Normal", "ExternalProvisioning", text)
        if self._only_own and provisioner != PROVISIONER:
            return
        text = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self._record_event(claim, "Normal", "Provisioning", text, component=provisioner)
        self._store.create(PERSISTENT_VOLUMES, self._provisioned(name, claim, storage_class, node))
        text = f"Successfully provisioned volume {name}"
        self._record_event(claim, "Normal", "ProvisioningSucceeded", text, component=provisioner)

    def _provisioned(self, name: str, claim: JSON, storage_class: JSON, node: JSON | None) -> JSON:
        spec: JSON = {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "hostPath": {"path": f"/var/kubeloop/volumes/{name}", "type": "DirectoryOrCreate"},
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": _claim_ref(claim),
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        }
        if storage_class.get("mountOptions"):
            spec["mountOptions"] = storage_class["mountOptions"]
        if claim["spec"].get("volumeAttributesClassName"):
            spec["volumeAttributesClassName"] = claim["spec"]["volumeAttributesClassName"]
        if node is not None:
            label = "kubernetes.io/hostname"
            host = (node["metadata"].get("labels") or {}).get(label, node["metadata"]["name"])
            term = {"matchExpressions": [{"key": label, "operator": "In", "values": [host]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        now = self._wall()
        return {
            "kind": "PersistentVolume",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "uid": new_uid(self._rng),
                "creationTimestamp": now,
                "annotations": {_PROVISIONED_BY: storage_class["provisioner"]},
                "finalizers": [_VOLUME_IN_USE],
            },
            "spec": spec,
            "status": {"phase": "Pending", "lastPhaseTransitionTime": now},
        }

    # --- volumes ----------------------------------------------------------------------------------

    def _sync_volume(self, name: str) -> None:
        volume = self._store.get(PERSISTENT_VOLUMES, "", name)
        if volume is None:
            return
        if "deletionTimestamp" in volume["metadata"] and phase_of(volume) != "Bound":
            self._release(PERSISTENT_VOLUMES, volume, _VOLUME_IN_USE)
            return
        ref = volume["spec"].get("claimRef")
        if not ref or not ref.get("uid"):
            self._update(PERSISTENT_VOLUMES, self._in_phase(volume, "Available"))
            return
        claim = self._claim(_ref_key(ref))
        if claim is None or claim["metadata"]["uid"] != ref["uid"]:
            if phase_of(volume) not in ("Released", "Failed"):
                volume = self._update(PERSISTENT_VOLUMES, self._in_phase(volume, "Released"))
            self._reclaim(volume)
        elif claim["spec"].get("volumeName") == name:
            self._update(PERSISTENT_VOLUMES, self._in_phase(volume, "Bound"))
        elif not claim["spec"].get("volumeName"):
            self._enqueue("PersistentVolumeClaim", key_of(claim))
        elif _PROVISIONED_BY in annotations_of(volume) and _policy(volume) == "Delete":
            # a second volume was provisioned for a claim that is bound to the first
            volume = self._update(PERSISTENT_VOLUMES, self._in_phase(volume, "Released"))
            self._reclaim(volume)
        else:
            self._unbind(volume)

    def _reclaim(self, volume: JSON) -> None:
        """Apply the reclaim policy of a volume whose claim is deleted: delete, recycle or retain it."""
        if _policy(volume) == "Recycle":
            self._unbind(volume)
        elif _policy(volume) == "Delete" and "deletionTimestamp" not in volume["metadata"]:
            if _PROVISIONED_BY not in annotations_of(volume) and "csi" not in volume["spec"]:
                if phase_of(volume) != "Failed":
                    name = volume["metadata"]["name"]
                    text = (
                        f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
                    )
                    status = {**volume.get("status", {}), "message": text}
                    volume = self._in_phase({**volume, "status": status}, "Failed")
                    volume = self._update(PERSISTENT_VOLUMES, volume)
                    self._record_event(volume, "Warning", "VolumeFailedDelete", text)
                return
            metadata = {**volume["metadata"], "deletionTimestamp": self._wall(), "deletionGracePeriodSeconds": 0}
            volume = self._update(PERSISTENT_VOLUMES, {**volume, "metadata": metadata})
            self._release(PERSISTENT_VOLUMES, volume, _VOLUME_IN_USE)

    def _unbind(self, volume: JSON) -> None:
        """Undo _bind(); a claimRef that the user wrote stays, without uid."""
        spec = dict(volume["spec"])
        if BOUND_BY_CONTROLLER in annotations_of(volume) or _policy(volume) == "Recycle":
            spec.pop("claimRef")
            volume = _without_annotation(volume, BOUND_BY_CONTROLLER)
        else:
            spec["claimRef"] = {name: value for name, value in spec["claimRef"].items() if name != "uid"}
        self._update(PERSISTENT_VOLUMES, self._in_phase({**volume, "spec": spec}, "Available"))

    # --- helpers ----------------------------------------------------------------------------------

    def _claim(self, key: str) -> JSON | None:
        namespace, _, name = key.partition("/")
        return self._store.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)

    def _wait_for(self, what: str, claim: JSON) -> None:
        self._pending_claims.setdefault(what, {})[key_of(claim)] = None

    def _in_phase(self, volume: JSON, phase: str) -> JSON:
        if phase_of(volume) == phase:
            return volume
        status = {**(volume.get("status") or {}), "phase": phase, "lastPhaseTransitionTime": self._wall()}
        if phase != "Failed":
            status.pop("message", None)
        return {**volume, "status": status}

    def _write_claim_status(self, claim: JSON, status: JSON) -> JSON:
        """Set the phase and related fields; a claim without volume has no capacity and access modes."""
        rest = {name: value for name, value in (claim.get("status") or {}).items() if name not in _OF_THE_VOLUME}
        return self._update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {**rest, **status}})

    def _release(self, resource: Resource[Any], obj: JSON, finalizer: str) -> None:
        """Remove the finalizer from an object in deletion; without finalizers it is deleted."""
        left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
        if left:
            self._update(resource, {**obj, "metadata": {**metadata, "finalizers": left}})
            return
        table = self._store.table(resource)
        stored = table.get(key_of(obj))
        if stored is not None:
            table.delete(stored, {**stored.object, "metadata": metadata})

    def _update(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Store an object if it differs; the resulting change event is ignored."""
        stored = self._store.table(resource).get(key_of(obj))
        if stored is not None and stored.object == obj:
            return obj
        return self._store.update(resource, obj)

    def _record_event(self, obj: JSON, type_: str, reason: str, message: str, *, component: str = _BINDER) -> None:
        """Record an event unless it repeats the object's last one."""
        uid = obj["metadata"]["uid"]
        if self._last_events.get(uid) != (reason, message):
            self._last_events[uid] = reason, message
            self._events.record(obj, type_, reason, message, field_path="", component=component, host="")

    def _wall(self) -> str:
        return rfc3339(self._clock.now())


_OF_THE_VOLUME = ("accessModes", "capacity")


def _policy(volume: JSON) -> str:
    return volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain"


def _ref_key(ref: JSON) -> str:
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}"


def _claim_ref(claim: JSON) -> JSON:
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "v1",
        "resourceVersion": metadata["resourceVersion"],
    }


def _annotated(obj: JSON, added: dict[str, str]) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations_of(obj), **added}}}


def _without_annotation(obj: JSON, name: str) -> JSON:
    metadata = dict(obj["metadata"])
    rest = {key: text for key, text in annotations_of(obj).items() if key != name}
    metadata.pop("annotations", None)
    return {**obj, "metadata": {**metadata, "annotations": rest} if rest else metadata}
