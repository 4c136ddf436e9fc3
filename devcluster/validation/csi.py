"""What drivers of storage say of themselves and of nodes, attachments, and classes of attributes.

Source: pkg/apis/storage/validation of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.api.name_checks import dns_subdomain, qualified_name
from kubeloop.devcluster.validation.field import Errors, label_selector
from kubeloop.devcluster.validation.storage import parameters, provisioner, volume_spec
from kubeloop.devcluster.validation.volumes import csi_driver_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import parse_quantity

_METADATA_LIMIT, _MESSAGE_LIMIT, _NODE_ID_LIMIT = 256 * 1024, 1024, 256
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Persistent", "Ephemeral")


# --- attachments ------------------------------------------------------------------------------------------------------


def attachment_create(errors: Errors, obj: JSON) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    source = spec.get("source") or {}
    csi_driver_name(errors, "spec.attacher", spec.get("attacher", ""))
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    one_of_two = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if volume is None and inline is None:
        errors.required("spec.source", one_of_two)
    elif volume is not None and inline is not None:
        errors.forbidden("spec.source", one_of_two)
    elif volume == "":
        errors.required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        volume_spec(errors, "spec.source.inlineVolumeSpec", inline, inline=True)
    node = spec.get("nodeName", "")
    errors.invalid_each("spec.nodeName", node, dns_subdomain(node))
    _attachment_status(errors, status)
    if volume is not None:
        errors.invalid_each("spec.source.persistentVolumeName", volume, dns_subdomain(volume))


def _attachment_status(errors: Errors, status: JSON) -> None:
    metadata = status.get("attachmentMetadata", {})
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _METADATA_LIMIT:
        errors.too_long("status.attachmentMetadata", _METADATA_LIMIT)
    for name in ("attachError", "detachError"):
        wrong = status.get(name) or {}
        if len(wrong.get("message", "").encode()) > _MESSAGE_LIMIT:
            errors.too_long(f"status.{name}.message", _METADATA_LIMIT)  # v1.36 names this limit
        if wrong.get("errorCode", 0) < 0:
            told = "must be between 0 and 2147483647, inclusive"
            errors.invalid(f"status.{name}.errorCode", wrong["errorCode"], told)


def attachment_update(errors: Errors, obj: JSON, old: JSON) -> None:
    attachment_create(errors, obj)
    errors.immutable("spec", obj["spec"], old["spec"], "storage/v1.VolumeAttachmentSpec")


def attachment_status(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    _attachment_status(errors, obj.get("status") or {})


# --- drivers on nodes -------------------------------------------------------------------------------------------------


def csi_node_create(errors: Errors, obj: JSON) -> None:
    seen = set()
    for i, driver in enumerate(obj["spec"].get("drivers") or ()):
        where, name, node_id = f"spec.drivers[{i}]", driver.get("name", ""), driver.get("nodeID", "")
        csi_driver_name(errors, f"{where}.name", name)
        if not node_id:
            errors.required(f"{where}.nodeID")
        elif len(node_id.encode()) > _NODE_ID_LIMIT:
            errors.invalid(f"{where}.nodeID", node_id, f"must be {_NODE_ID_LIMIT} characters or less")
        errors.not_negative(f"{where}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
        if name in seen:
            errors.duplicate(f"{where}.name", name)
        seen.add(name)
        _topology_keys(errors, where, driver.get("topologyKeys") or ())


def _topology_keys(errors: Errors, path: str, keys: Sequence[str]) -> None:
    for i, key in enumerate(keys):
        if not key:
            errors.required(path)
        if key in keys[:i]:
            errors.duplicate(path, key)
        errors.invalid_each(path, key, qualified_name(key))


def csi_node_update(errors: Errors, obj: JSON, old: JSON) -> None:
    csi_node_create(errors, obj)
    new = {each.get("name"): each for each in obj["spec"].get("drivers") or ()}
    for before in old["spec"].get("drivers") or ():
        after = new.get(before.get("name"))
        if after is None:
            continue
        one, other = ({**each, "allocatable": None} for each in (after, before))
        if one != other:
            shown = {name: value for name, value in after.items() if name != "allocatable"}
            errors.invalid("spec.drivers", shown, "field is immutable", "storage/v1.CSINodeDriver")


# --- drivers ----------------------------------------------------------------------------------------------------------


def csi_driver_create(errors: Errors, obj: JSON) -> None:
    spec = obj["spec"]
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _GROUP_POLICIES:
        errors.not_supported("spec.fsGroupPolicy", policy, _GROUP_POLICIES)
    _token_requests(errors, spec.get("tokenRequests", ()))
    for mode in spec.get("volumeLifecycleModes", ()):
        if mode not in _LIFECYCLES:
            errors.not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        told = "must be greater than or equal to 10 seconds"
        errors.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, told)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        told = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.invalid("spec.serviceAccountTokenInSecrets", in_secrets, told)


def _token_requests(errors: Errors, requests: Sequence[JSON]) -> None:
    seen = set()
    for i, each in enumerate(requests):
        where, audience, seconds = f"spec.tokenRequests[{i}]", each.get("audience", ""), each.get("expirationSeconds")
        if audience in seen:
            errors.duplicate(f"{where}.audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            errors.invalid(f"{where}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > 1 << 32:
            told = "may not specify a duration larger than 2^32 seconds"
            errors.invalid(f"{where}.expirationSeconds", seconds, told)


def csi_driver_update(errors: Errors, obj: JSON, old: JSON) -> None:
    csi_driver_create(errors, obj)
    new, before = obj["spec"], old["spec"]
    errors.immutable("spec.attachedRequired", new.get("attachRequired"), before.get("attachRequired"))
    errors.immutable("spec.volumeLifecycleModes", new.get("volumeLifecycleModes"), before.get("volumeLifecycleModes"))


# --- capacities and classes -------------------------------------------------------------------------------------------


def capacity_create(errors: Errors, obj: JSON) -> None:
    label_selector(errors, "nodeTopology", obj.get("nodeTopology"))
    name = obj.get("storageClassName", "")
    errors.invalid_each("storageClassName", name, dns_subdomain(name))
    amount = obj.get("capacity")
    if amount is not None and parse_quantity(amount).nano() < 0:
        errors.invalid("capacity", amount, "must be greater than or equal to 0")


def capacity_update(errors: Errors, obj: JSON, old: JSON) -> None:
    capacity_create(errors, obj)
    errors.immutable("nodeTopology", obj.get("nodeTopology"), old.get("nodeTopology"), "meta/v1.LabelSelector")
    errors.immutable("storageClassName", obj.get("storageClassName", ""), old.get("storageClassName", ""))


def attributes_class_create(errors: Errors, obj: JSON) -> None:
    provisioner(errors, "driverName", obj.get("driverName", ""))
    parameters(errors, obj.get("parameters"))
    if not obj.get("parameters"):
        errors.required("parameters", "must contain at least one key/value pair")


def attributes_class_update(errors: Errors, obj: JSON, old: JSON) -> None:
    for name in ("driverName", "parameters"):
        if obj.get(name) != old.get(name):
            errors.forbidden(name, f"updates to {name} are forbidden.")
    attributes_class_create(errors, obj)
