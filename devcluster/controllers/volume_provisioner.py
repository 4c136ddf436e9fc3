"""Volume provisioner: creates, expands and modifies volumes for claims, and deletes those of deleted claims, as the
sidecars of a CSI driver do.

It serves every StorageClass that names a provisioner, and creates volumes at once, or after the seconds in the class's
annotation kubeloop.dev/provision-seconds. A volume that waits for its consumer is for the node's segment of the
driver's topology (CSINode), by default the node. The persistent volume binder of a controller manager annotates the
claims that need a volume, and binds them.
"""

from __future__ import annotations

import asyncio
import logging
import random

from kubeloop.devcluster.api.field_access import without_annotation
from kubeloop.devcluster.api.served_resources import VOLUME_ATTRIBUTES_CLASSES
from kubeloop.devcluster.controllers.volume_modifier import VolumeModifier, is_waiting_for_class
from kubeloop.devcluster.controllers.volume_resizer import VolumeResizer
from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kubeloop.kube.uids import new_uid

log = logging.getLogger(__name__)

DEFAULT_CLASS = "standard"
PROVISIONER = "kubeloop.dev/simulated"

PROVISION_SECONDS = "kubeloop.dev/provision-seconds"

_HOST_NAME = "kubernetes.io/hostname"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_VOLUME_IN_USE = "kubernetes.io/pv-protection"
_BATCH = 50  # objects per turn of the event loop


class VolumeProvisioner:
    """The provisioner of all StorageClasses. Call run() once; register() before it creates the default class."""

    def __init__(self, store: ObjectStore, *, clock: Clock, rng: random.Random, only_own: bool = False) -> None:
        """only_own: ignore classes of other provisioners."""
        self._only_own = only_own
        self._store = store
        self._clock = clock
        self._rng = rng
        self._events = StoreEventRecorder(store, clock=clock, rng=rng)
        self._dirty: dict[tuple[str, str, str], None] = {}  # (kind, namespace, name) to sync, oldest first
        self._wake = asyncio.Event()
        self._due: dict[tuple[str, str], float] = {}  # (namespace, name) of claims -> loop time of their volume
        self._resizer = VolumeResizer(store, clock, self._events, self._enqueue)
        self._modifier = VolumeModifier(store, clock, self._events)

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
                "allowVolumeExpansion": True,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self._store.create(STORAGE_CLASSES, storage_class)

    async def run(self) -> None:
        """Provision, expand, modify and delete until cancelled."""
        resources = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
        unsubscribe = [self._store.subscribe(resource, self._receive) for resource in resources]
        unsubscribe += [
            self._store.subscribe(VOLUME_ATTRIBUTES_CLASSES, self._on_attributes_class),
            self._resizer.stop,
        ]
        try:
            for resource in resources:
                for obj in self._store.list(resource):
                    self._enqueue(obj)
            done = 0
            while True:
                while self._dirty:
                    kind, namespace, name = next(iter(self._dirty))
                    del self._dirty[kind, namespace, name]
                    self._sync(kind, namespace, name)
                    done += 1
                    if done % _BATCH == 0:
                        await asyncio.sleep(0)
                self._wake.clear()
                await self._wake.wait()
        finally:
            for stop in unsubscribe:
                stop()

    def _receive(self, change: Change) -> None:
        if change.type != "DELETED":
            self._enqueue(change.now.object)

    def _on_attributes_class(self, change: Change) -> None:
        """Queue the claims that wait for a new VolumeAttributesClass."""
        if change.type == "ADDED":
            for claim in self._store.list(PERSISTENT_VOLUME_CLAIMS):
                if is_waiting_for_class(claim, change.now.object["metadata"]["name"]):
                    self._enqueue(claim)

    def _enqueue(self, obj: JSON) -> None:
        metadata = obj["metadata"]
        self._dirty[obj["kind"], metadata.get("namespace", ""), metadata["name"]] = None
        self._wake.set()

    def _sync(self, kind: str, namespace: str, name: str) -> None:
        """Sync one object; an error must not stop the others."""
        try:
            if kind == "PersistentVolume":
                self._delete_released(name)
            else:
                self._sync_claim(namespace, name)
        except Exception:
            log.exception("failed to sync a volume or claim", extra={"kind": kind, "key": f"{namespace}/{name}"})

    # --- claims -----------------------------------------------------------------------------------

    def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self._store.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        if claim is not None and not claim["spec"].get("volumeName"):
            self._provision(claim, namespace, name)
            return
        self._due.pop((namespace, name), None)
        if claim is None:
            return
        volume = self._store.get(PERSISTENT_VOLUMES, "", claim["spec"]["volumeName"])
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return
        if provisioner := self._provisioner_of(volume):
            component = f"external-resizer {provisioner}"
            self._resizer.sync(claim, volume, component)
            self._modifier.sync(namespace, name, component)

    def _provision(self, claim: JSON, namespace: str, name: str) -> None:
        """Create a volume for a claim that requests one and is not bound."""
        if "deletionTimestamp" in claim["metadata"]:
            return
        annotations = claim["metadata"].get("annotations") or {}
        provisioner = annotations.get(_STORAGE_PROVISIONER)
        if not provisioner or (self._only_own and provisioner != PROVISIONER):
            return
        class_name = annotations.get(_BETA_CLASS, claim["spec"].get("storageClassName") or "")
        storage_class = self._store.get(STORAGE_CLASSES, "", class_name)
        volume_name = f"pvc-{claim['metadata']['uid']}"
        if storage_class is None or self._store.get(PERSISTENT_VOLUMES, "", volume_name) is not None:
            return
        node = None
        if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
            selected = annotations.get(_SELECTED_NODE)
            if selected is None:
                return
            node = self._store.get(NODES, "", selected)
            if node is None:
                # without the annotation the scheduler selects a node again
                text = f'failed to get target node: node "{selected}" not found'
                self._events.record(claim, "Warning", "ProvisioningFailed", text, component=provisioner)
                self._store.update(PERSISTENT_VOLUME_CLAIMS, without_annotation(claim, _SELECTED_NODE))
                return
        if self._is_waiting(claim, namespace, name, storage_class):
            return
        text = f'External provisioner is provisioning volume for claim "{namespace}/{name}"'
        self._events.record(claim, "Normal", "Provisioning", text, component=provisioner)
        self._store.create(PERSISTENT_VOLUMES, self._volume(volume_name, claim, storage_class, node))
        text = f"Successfully provisioned volume {volume_name}"
        self._events.record(claim, "Normal", "ProvisioningSucceeded", text, component=provisioner)

    def _is_waiting(self, claim: JSON, namespace: str, name: str, storage_class: JSON) -> bool:
        """Return True until the seconds of the class have passed since the first call; then sync the claim again."""
        seconds = (storage_class["metadata"].get("annotations") or {}).get(PROVISION_SECONDS)
        if seconds is None:
            return False
        loop = asyncio.get_running_loop()
        due = self._due.get((namespace, name))
        if due is None:
            due = self._due[namespace, name] = loop.time() + float(seconds)
            loop.call_at(due, self._enqueue, claim)
        return loop.time() < due

    def _volume(self, name: str, claim: JSON, storage_class: JSON, node: JSON | None) -> JSON:
        spec: JSON = {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "csi": {"driver": storage_class["provisioner"].replace("/", ".").lower(), "volumeHandle": name},
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
            segment = [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in self._topology(node, storage_class["provisioner"]).items()
            ]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": segment}]}}
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

    def _topology(self, node: JSON, driver: str) -> dict[str, str]:
        """Return the labels of the node that its CSINode names for the driver, or its host name."""
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        csi_node = self._store.get(CSI_NODES, "", name) or {"spec": {"drivers": []}}
        for entry in csi_node["spec"]["drivers"]:
            if entry["name"] == driver and (keys := entry.get("topologyKeys")):
                return {key: labels[key] for key in keys if key in labels}
        return {_HOST_NAME: labels.get(_HOST_NAME, name)}

    # --- volumes ----------------------------------------------------------------------------------

    def _delete_released(self, name: str) -> None:
        """Delete a provisioned volume whose claim is deleted, if that is its reclaim policy."""
        volume = self._store.get(PERSISTENT_VOLUMES, "", name)
        if volume is None or (volume.get("status") or {}).get("phase") != "Released":
            return
        metadata = volume["metadata"]
        if not self._provisioner_of(volume):
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy") != "Delete" or "deletionTimestamp" in metadata:
            return
        if metadata.get("finalizers"):
            deleted = {**metadata, "deletionTimestamp": self._wall(), "deletionGracePeriodSeconds": 0}
            self._store.update(PERSISTENT_VOLUMES, {**volume, "metadata": deleted})
        else:
            self._store.delete(PERSISTENT_VOLUMES, "", name)

    def _provisioner_of(self, volume: JSON) -> str:
        """Return the provisioner that created a volume; "" if none that this one stands for did."""
        provisioner = (volume["metadata"].get("annotations") or {}).get(_PROVISIONED_BY) or ""
        return "" if self._only_own and provisioner != PROVISIONER else str(provisioner)

    def _wall(self) -> str:
        return rfc3339(self._clock.now())


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
