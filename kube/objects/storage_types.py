"""Storage API objects with the fields that control logic reads: volumes, claims, classes, CSI.

The rules of `api_types` apply. The volumes of a pod are in `api_types`. In-line disks are JSON values, which are only
compared.
"""

from __future__ import annotations

from kubeloop.kube.objects.api_types import (
    InTreeVolumeSources,
    JSONValue,
    LabelSelector,
    NodeSelector,
    Object,
    ObjectReference,
    Quantity,
    Struct,
)


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(InTreeVolumeSources):
    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    persistent_volume_reclaim_policy: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(Struct):
    phase: str = ""


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class VolumeResourceRequirements(Struct):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class PersistentVolumeClaimSpec(Struct):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Struct):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Quantity] = {}
    allocated_resources: dict[str, Quantity] = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: JSONValue = None


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TopologySelectorLabelRequirement(Struct):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object):
    provisioner: str = ""
    parameters: dict[str, str] = {}
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def is_default_class(storage_class: StorageClass) -> bool:
    """Return True if claims without a class get this one. Source: pkg/volume/util/storageclass.go."""
    return any(storage_class.metadata.annotations.get(name) == "true" for name in _DEFAULT_CLASS)


class VolumeNodeResources(Struct):
    count: int | None = None


class CSINodeDriver(Struct):
    name: str = ""
    node_id: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Struct):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object):
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Struct):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object):
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Struct):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Struct):
    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()
    node_name: str = ""


class VolumeAttachmentStatus(Struct):
    attached: bool = False


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
