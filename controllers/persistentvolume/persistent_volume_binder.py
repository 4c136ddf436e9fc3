"""Persistent volume binder: the events that enqueue claims and volumes, and their reconciles.

Level-triggered: each reconcile advances a claim or a volume by a step, and writes only what has changed. Unlike in
Kubernetes, a pending claim does not wait up to 15 s for the next sync. Volumes are provisioned and deleted by the
provisioner of their class, another program. Source: v1.36 pkg/controller/volume/persistentvolume/pv_controller.go.

    claim    Pending --a volume names it, fits, or is provisioned--> Bound --volume deleted--> Lost
    volume   Available --claimRef and claim agree--> Bound --claim deleted--> Released
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from kubeloop.controllers.persistentvolume.binder_writes import BinderWrites
from kubeloop.controllers.persistentvolume.volume_matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM_REF_INDEX,
    FREE_INDEX,
    PROVISIONED_BY,
    SELECTED_NODE,
    WAITING_INDEX,
    best_match,
    by_claim_ref,
    by_free_class,
    by_wait,
    claim_ref_key,
    class_of,
    class_wait,
    default_class,
    has_class,
    is_bound_to,
    mismatch_message,
    volume_wait,
)
from kubeloop.controllers.runtime.controller import ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.volume_claims import CLAIM_INDEX, by_claim, claims_of_pod
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import JSONValue, ObjectReference, Pod, Quantity
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kubeloop.kube.objects.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    is_default_class,
)
from kubeloop.kube.values.quantities import QuantityError, parse_quantity

_PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_STORAGE_PROVISIONER = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
_WORKERS = 5  # per queue


class PersistentVolumeBinder:
    """Reconciles PersistentVolumeClaims and PersistentVolumes; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        informers = context.informers
        claims, volumes = informers.informer(PERSISTENT_VOLUME_CLAIMS), informers.informer(PERSISTENT_VOLUMES)
        classes, pods = informers.informer(STORAGE_CLASSES), informers.informer(PODS)
        self._claim_store, self._volume_store = claims.store, volumes.store
        self._classes, self._pods = classes.store, pods.store
        self._claim_store.add_index(WAITING_INDEX, by_wait)
        self._volume_store.add_index(CLAIM_REF_INDEX, by_claim_ref)
        self._volume_store.add_index(FREE_INDEX, by_free_class)
        self._claim_index = self._pods.shared_index(CLAIM_INDEX, by_claim)
        self._writes = BinderWrites(context)
        self._claims, self._volumes = self._writes.claims, self._writes.volumes
        self._claim_queue, self._volume_queue = context.new_queue("claims"), context.new_queue("volumes")
        self._claim_controller = ReconcileLoop(
            "persistentvolumebinder", self.reconcile_claim, self._claim_queue, _WORKERS, context
        )
        self._volume_controller = ReconcileLoop(
            "persistentvolumebinder", self.reconcile_volume, self._volume_queue, _WORKERS, context
        )
        self._registrations = (
            claims.on_latest(self.on_claim, deleted=self.on_claim_delete),
            volumes.on_events(added=self.on_volume, updated=self.on_volume_update, deleted=self.on_volume_delete),
            classes.on_latest(self.on_class),
            pods.on_events(added=self.on_pod),
        )

    async def run(self) -> None:
        """Bind until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for controller in (self._claim_controller, self._volume_controller):
                tasks.create_task(controller.run(self._registrations), name="persistentvolume-binder")

    # --- event handlers --------------------------------------------------------------------------------------------

    def on_claim(self, claim: PersistentVolumeClaim) -> None:
        self._claim_queue.add(claim.key)
        if claim.spec.volume_name:
            self._volume_queue.add(claim.spec.volume_name)
        for volume in self._volume_store.by_index(CLAIM_REF_INDEX, claim.key):
            self._volume_queue.add(volume.metadata.name)

    def on_claim_delete(self, claim: PersistentVolumeClaim) -> None:
        self._writes.forget_events(claim)
        self.on_claim(claim)

    def on_volume_update(self, old: PersistentVolume, new: PersistentVolume) -> None:
        if old.spec.claim_ref is not None:
            self._claim_queue.add(claim_ref_key(old))
        self.on_volume(new)

    def on_volume(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        self._volume_queue.add(name)
        waits = [volume_wait(name)]
        if volume.spec.claim_ref is not None:
            self._claim_queue.add(claim_ref_key(volume))
        else:
            waits.append(class_wait(class_of(volume)))
        self._enqueue_waiting(*waits)

    def on_volume_delete(self, volume: PersistentVolume) -> None:
        self._writes.forget_events(volume)
        self.on_volume(volume)

    def on_class(self, storage_class: StorageClass) -> None:
        self._enqueue_waiting(class_wait(storage_class.metadata.name))
        if is_default_class(storage_class):
            self._enqueue_waiting(class_wait(""))

    def on_pod(self, pod: Pod) -> None:
        if pod.spec.volumes:
            for key, _ in claims_of_pod(pod):
                self._claim_queue.add(key)

    def _enqueue_waiting(self, *waits: str) -> None:
        for wait in waits:
            for claim in self._claim_store.by_index(WAITING_INDEX, wait):
                self._claim_queue.add(claim.key)

    # --- claims ----------------------------------------------------------------------------------------------------

    async def reconcile_claim(self, key: str) -> float | None:
        """Bring a claim one step closer to its volume. An exception means: retry with backoff."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        with suppress(NotFound):  # deleted in the meantime
            if BIND_COMPLETED in claim.metadata.annotations:
                await self._sync_bound(claim)
            elif claim.metadata.deletion_timestamp is None:
                await self._sync_unbound(claim)
        return None

    async def _sync_bound(self, claim: PersistentVolumeClaim) -> None:
        name = claim.spec.volume_name
        if not name:
            text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            await self._mark_lost(claim, "ClaimLost", text)
            return
        volume = self._volumes.get(name)
        if volume is None:
            text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            await self._mark_lost(claim, "ClaimLost", text)
        elif volume.spec.claim_ref is None or is_bound_to(volume, claim):
            await self._bind(volume, claim)
        else:
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
            await self._mark_lost(claim, "ClaimMisbound", text)

    async def _sync_unbound(self, claim: PersistentVolumeClaim) -> None:
        if claim.spec.volume_name:
            await self._bind_named_volume(claim, claim.spec.volume_name)
            return
        class_name = class_of(claim)
        storage_class = self._classes.get(class_name) if class_name else None
        delayed = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
        volume = best_match(claim, self._candidates(claim, delayed=delayed), delayed=delayed)
        if volume is not None:
            await self._bind(volume, claim)
            return
        if not has_class(claim):
            default = default_class(self._classes.values())
            if default is not None:  # created after the claim, which admission would have given this class
                await self._writes.patch_claim(claim, spec={"storageClassName": default.metadata.name})
                return
        claim = await self._writes.write_claim_status(claim, "Pending")
        if delayed and SELECTED_NODE not in claim.metadata.annotations:
            self._writes.record_event(claim, "Normal", *self._waits_for(claim))
        elif storage_class is not None:
            await self._request_provisioning(claim, storage_class)
        elif class_name:
            text = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._writes.record_event(claim, "Warning", "ProvisioningFailed", text)
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._writes.record_event(claim, "Normal", "FailedBinding", text)

    def _candidates(self, claim: PersistentVolumeClaim, *, delayed: bool) -> list[PersistentVolume]:
        """Return the volumes with a claimRef to the claim, and the free ones of its class unless it is delayed."""
        candidates = self._volume_store.by_index(CLAIM_REF_INDEX, claim.key)
        if not delayed:
            candidates += self._volume_store.by_index(FREE_INDEX, class_of(claim))
        newest = [self._volumes.get(volume.key) for volume in candidates]
        return [volume for volume in newest if volume is not None]

    async def _bind_named_volume(self, claim: PersistentVolumeClaim, name: str) -> None:
        """Bind a claim to the volume that its spec names."""
        volume = self._volumes.get(name)
        if volume is not None and is_bound_to(volume, claim):
            await self._bind(volume, claim)
            return
        problem = "" if volume is None or volume.spec.claim_ref is not None else mismatch_message(volume, claim)
        if volume is not None and volume.spec.claim_ref is None and not problem:
            await self._bind(volume, claim)
            return
        claim = await self._writes.write_claim_status(claim, "Pending")
        if problem:
            text = f'Cannot bind to requested volume "{name}": {problem}'
            self._writes.record_event(claim, "Warning", "VolumeMismatch", text)
        elif volume is not None:
            text = f'volume "{name}" already bound to a different claim.'
            self._writes.record_event(claim, "Warning", "FailedBinding", text)

    def _waits_for(self, claim: PersistentVolumeClaim) -> tuple[str, str]:
        pods = [pod.metadata.name for pod in self._pods.by_index(self._claim_index, claim.key) if not is_finished(pod)]
        if not pods:
            return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        if len(pods) == 1:
            return "WaitForPodScheduled", f"waiting for pod {pods[0]} to be scheduled"
        return "WaitForPodScheduled", f"waiting for pods {','.join(pods)} to be scheduled"

    async def _request_provisioning(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> None:
        """Annotate the claim for the provisioner of its class."""
        provisioner = storage_class.provisioner
        if provisioner == _NO_PROVISIONER:
            text = f"no volume plugin matched name: {provisioner}"
            self._writes.record_event(claim, "Warning", "ProvisioningFailed", text)
            return
        added = {name: provisioner for name in _STORAGE_PROVISIONER if name not in claim.metadata.annotations}
        if added:
            claim = await self._writes.patch_claim(claim, metadata={"annotations": added})
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._writes.record_event(claim, "Normal", "ExternalProvisioning", text)

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Bind a volume and a claim to each other; idempotent."""
        metadata, ref = claim.metadata, volume.spec.claim_ref
        if ref is None or ref.uid != metadata.uid:
            added = {"annotations": {BOUND_BY_CONTROLLER: "yes"}} if ref is None else {}
            volume = await self._writes.patch_volume(volume, metadata=added, spec={"claimRef": _claim_ref(claim)})
        volume = await self._writes.write_phase(volume, "Bound")
        annotations = {} if BIND_COMPLETED in metadata.annotations else {BIND_COMPLETED: "yes"}
        spec = {}
        if claim.spec.volume_name != volume.metadata.name:
            spec["volumeName"] = volume.metadata.name
            annotations[BOUND_BY_CONTROLLER] = "yes"
        if annotations:
            claim = await self._writes.patch_claim(claim, metadata={"annotations": annotations}, spec=spec)
        # once bound, the capacity is the file system's, which the node resizes
        known = claim.status.capacity if claim.status.phase == "Bound" else {}
        # and the class is that which the driver's resizer has applied
        source = volume.spec.volume_attributes_class_name
        current_class = source if claim.status.phase == "Pending" else claim.status.current_volume_attributes_class_name
        await self._writes.write_claim_status(
            claim, "Bound", volume.spec.access_modes, known or _usable_capacity(volume), current_class
        )

    async def _mark_lost(self, claim: PersistentVolumeClaim, reason: str, message: str) -> None:
        if claim.status.phase != "Lost":
            claim = await self._writes.write_claim_status(claim, "Lost")
            self._writes.record_event(claim, "Warning", reason, message)

    # --- volumes ---------------------------------------------------------------------------------------------------

    async def reconcile_volume(self, name: str) -> float | None:
        """Bring the phase and claimRef of a volume in line with its claim. An exception means: retry with backoff."""
        volume = self._volumes.get(name)
        if volume is not None:
            with suppress(NotFound):  # deleted in the meantime
                await self._sync_volume(volume)
        return None

    async def _sync_volume(self, volume: PersistentVolume) -> None:
        ref = volume.spec.claim_ref
        if ref is None or not ref.uid:
            if volume.metadata.deletion_timestamp is None:
                await self._writes.write_phase(volume, "Available")
            return
        claim = await self._claim_of(volume, ref)
        if claim is None:
            if volume.status.phase not in ("Released", "Failed"):
                volume = await self._writes.write_phase(volume, "Released")
            await self._reclaim(volume)
        elif claim.spec.volume_name == volume.metadata.name:
            await self._writes.write_phase(volume, "Bound")
        elif not claim.spec.volume_name:
            self._claim_queue.add(claim.key)
        elif PROVISIONED_BY in volume.metadata.annotations and _policy(volume) == "Delete":
            await self._writes.write_phase(volume, "Released")  # a second volume was provisioned for the claim
        else:
            await self._unbind(volume)

    async def _claim_of(self, volume: PersistentVolume, ref: ObjectReference) -> PersistentVolumeClaim | None:
        """Return the claim of a claimRef with a UID, None if it is deleted.

        Before a volume is released, the claim is read from the API server. The cache may not show it yet, for example
        if a provisioner has just created the volume, and a volume released by mistake is deleted with its data.
        """
        claim = self._claims.get(claim_ref_key(volume))
        is_cached = claim is not None and claim.metadata.uid == ref.uid
        if not is_cached and volume.status.phase not in ("Released", "Failed"):
            try:
                claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, ref.name, ref.namespace)
            except NotFound:
                return None
        return claim if claim is not None and claim.metadata.uid == ref.uid else None

    async def _reclaim(self, volume: PersistentVolume) -> None:
        """Apply the reclaim policy of a volume whose claim is deleted.

        A provisioned volume is deleted by its provisioner. No volume can be recycled, since its data would remain.
        """
        if _policy(volume) == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
        elif _policy(volume) == "Delete" and volume.metadata.deletion_timestamp is None:
            if PROVISIONED_BY in volume.metadata.annotations or volume.spec.csi:
                return
            name = volume.metadata.name
            text = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            await self._fail(volume, "VolumeFailedDelete", text)

    async def _fail(self, volume: PersistentVolume, reason: str, message: str) -> None:
        if volume.status.phase != "Failed":
            volume = await self._writes.write_phase(volume, "Failed", message)
            self._writes.record_event(volume, "Warning", reason, message)

    async def _unbind(self, volume: PersistentVolume) -> None:
        """Undo _bind(); a claimRef that the user wrote stays, without uid."""
        if BOUND_BY_CONTROLLER in volume.metadata.annotations:
            volume = await self._writes.patch_volume(
                volume, metadata={"annotations": {BOUND_BY_CONTROLLER: None}}, spec={"claimRef": None}
            )
        else:
            volume = await self._writes.patch_volume(volume, spec={"claimRef": {"uid": None}})
        await self._writes.write_phase(volume, "Available")


def _policy(volume: PersistentVolume) -> str:
    return volume.spec.persistent_volume_reclaim_policy or "Retain"


def _usable_capacity(volume: PersistentVolume) -> Mapping[str, Quantity]:
    """Return the capacity of a volume; before the file system on it is expanded, the smaller one of the file system."""
    before = volume.metadata.annotations.get(_PRE_RESIZE_CAPACITY)
    if before is None:
        return volume.spec.capacity
    try:
        parse_quantity(before)
    except QuantityError:
        return volume.spec.capacity
    return {"storage": before}


def _claim_ref(claim: PersistentVolumeClaim) -> JSONValue:
    metadata = claim.metadata
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "apiVersion": "v1",
        "resourceVersion": metadata.resource_version,
    }
