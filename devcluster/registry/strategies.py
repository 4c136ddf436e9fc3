"""Strategies of the kinds: fields that clients may not set, on create, update and status writes.

Source: the strategies under pkg/registry of Kubernetes v1.36. Objects are decoded, defaulted and owned by the request,
so they are changed in place. Pure functions otherwise: allocation and time belong to the server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.registry import extension_strategies
from kubeloop.devcluster.registry.disabled_device_fields import drop_deallocated_devices
from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS, DisabledFields
from kubeloop.devcluster.registry.match_label_keys import merge_match_label_keys
from kubeloop.devcluster.serializer.empty_values import restore_empty_values
from kubeloop.devcluster.validation.pod.security_profile_annotations import set_app_armor_from_annotations
from kubeloop.kube import schema
from kubeloop.kube.integers import parse_integer
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.objects.resources import Resource

PrepareCreate = Callable[[JSON, str], None]
PrepareUpdate = Callable[[JSON, JSON], None]


# --- create -----------------------------------------------------------------------------------------------------------


def _create_pod(pod: JSON, now: str) -> None:
    pod["metadata"]["generation"] = 1
    set_app_armor_from_annotations(pod)
    sent_qos_class = pod.get("status", {}).get("qosClass")
    pod["status"] = {"phase": "Pending", "qosClass": sent_qos_class or qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _create_namespace(namespace: JSON, _now: str) -> None:
    if name := namespace["metadata"].get("name"):  # validation reports a missing name
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    namespace["status"] = {"phase": "Active"}
    spec = namespace.setdefault("spec", {})
    if "kubernetes" not in spec.get("finalizers", ()):
        spec["finalizers"] = [*spec.get("finalizers", ()), "kubernetes"]


def _create_persistent_volume(volume: JSON, now: str) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}


def _create_service(service: JSON, _now: str) -> None:
    service["status"] = {"loadBalancer": {}}


_DATA_SOURCE_KINDS = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _create_persistent_volume_claim(claim: JSON, _now: str) -> None:
    claim["status"] = {"phase": "Pending"}
    _normalize_data_sources(claim["spec"])


def _normalize_data_sources(spec: JSON, before: JSON | None = None) -> None:
    """Synchronize dataSource and dataSourceRef; the former takes only claims and snapshots, without a namespace."""
    before = before or {}
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        kind = (source.get("apiGroup") or "", source.get("kind"))
        if before.get("dataSource") is None and kind not in _DATA_SOURCE_KINDS:
            spec.pop("dataSource")
        else:
            spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _drop_dynamic_kubelet_config(node: JSON, _now_or_old: Any = None) -> None:
    """Drop dynamic kubelet configuration, a removed feature; kubelets may set all other fields of the status."""
    node.get("spec", {}).pop("configSource", None)
    node.get("status", {}).pop("config", None)


def _update_csi_driver(driver: JSON, old: JSON) -> None:
    """Increase the generation with each change of the spec; it starts with the first change, not with the creation."""
    if driver.get("spec") != old.get("spec"):
        driver["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _drop_deprecated_topology(obj: JSON, _now_or_old: Any = None) -> None:
    """Drop deprecatedTopology, a field of v1beta1 of which v1 has only the zone."""
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _update_endpoint_slice(endpoint_slice: JSON, old: JSON) -> None:
    """Increase the generation if the endpoints change, even if only deprecated topology is dropped."""
    if endpoint_slice.get("endpoints") != old.get("endpoints"):
        endpoint_slice["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    _drop_deprecated_topology(endpoint_slice)


def _drop_coordinated_election_fields(lease: JSON, _now_or_old: Any = None) -> None:
    """Drop the fields of coordinated leader election, whose feature gate is off."""
    for name in ("strategy", "preferredHolder"):
        lease.get("spec", {}).pop(name, None)


def _keep_secret_names_only(account: JSON, _now_or_old: Any = None) -> None:
    """Keep only the names of the references to secrets."""
    if account.get("secrets"):
        account["secrets"] = [
            {name: secret[name] for name in ("name",) if name in secret} for secret in account["secrets"]
        ]


def _create_job(job: JSON, _now: str) -> None:
    """Generate a selector and labels with the Job's uid, unless manualSelector is set. Source: generateSelector."""
    spec, metadata = job["spec"], job["metadata"]
    job["status"] = {}
    if spec.get("manualSelector"):
        return
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
    match_labels = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    match_labels.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])


def _create_stateful_set(stateful_set: JSON, _now: str) -> None:
    stateful_set["status"] = {"replicas": 0, "availableReplicas": 0}


_CREATE: dict[str, PrepareCreate] = {
    "statefulsets.apps": _create_stateful_set,
    "jobs.batch": _create_job,
    "endpointslices.discovery.k8s.io": _drop_deprecated_topology,
    "leases.coordination.k8s.io": _drop_coordinated_election_fields,
    "serviceaccounts": _keep_secret_names_only,
    "pods": _create_pod,
    "namespaces": _create_namespace,
    "persistentvolumes": _create_persistent_volume,
    "persistentvolumeclaims": _create_persistent_volume_claim,
    "services": _create_service,
    "nodes": _drop_dynamic_kubelet_config,
    **extension_strategies.PREPARE_CREATE,
}


def prepare_for_create(
    served: ServedResource, obj: JSON, now: str, user: JSON, fields: DisabledFields = DEFAULT_FIELDS
) -> None:
    """Reset the fields that a client may not set, and set those of the server. now: in the format of the API."""
    if served.crd_version is not None:
        served.crd_version.prepare_create(obj)
        return
    name = served.resource.group_resource
    fields.drop(name, obj)
    if name == "pods":
        merge_match_label_keys(obj, spread=fields.merges_spread_keys)
    create = _CREATE.get(name)
    if create is not None:
        create(obj, now)
    elif served.has_status:
        obj["status"] = dict(served.empty_status)
    if name == "daemonsets.apps":
        _set_template_generation(obj, None)
    if (note := extension_strategies.SET_REQUESTER.get(name)) is not None:
        note(obj, user)
    metadata = obj["metadata"]
    if served.generation:
        metadata["generation"] = 1


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _set_template_generation(daemon_set: JSON, old: JSON | None) -> None:
    """Set the annotation with the generation of a DaemonSet's template, a field of the internal type."""
    annotations = {**daemon_set["metadata"].get("annotations", {})}  # after a patch, it may be the stored object's dict
    daemon_set["metadata"]["annotations"] = annotations
    if old is None:
        sent = annotations.get(_TEMPLATE_GENERATION, "")
        annotations[_TEMPLATE_GENERATION] = sent if sent.isdecimal() and parse_integer(sent) > 0 else "1"
        return
    before = old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1")
    changed = daemon_set["spec"]["template"] != old["spec"]["template"]
    annotations[_TEMPLATE_GENERATION] = str(parse_integer(before) + 1) if changed else before


def is_defaulted_on_read(served: ServedResource, obj: JSON) -> bool:
    """Return True if kube-apiserver defaults fields of this new object whenever it reads it, until the next write.

    True for claims, and for Jobs without labels, which get those of their template.
    """
    name = served.resource.group_resource
    return name == "persistentvolumeclaims" or (name == "jobs.batch" and not obj["metadata"].get("labels"))


def default_on_read(resource: Resource[Any], obj: JSON) -> None:
    """Default, in place, what kube-apiserver defaults in an object of this resource when it reads it."""
    name = resource.group_resource
    if (default := strategy_of(resource).default_on_read) is not None:
        default(obj)
    elif name == "podgroups.scheduling.k8s.io":
        obj["spec"].setdefault("disruptionMode", "Pod")  # also without its gate, which drops the field before
    elif name in ("jobs.batch", "replicationcontrollers"):
        labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


# --- update -----------------------------------------------------------------------------------------------------------


def _update_pod(pod: JSON, old: JSON) -> None:
    """Retain the fields that admission set on create if an update leaves them out. Source: admission/priority."""
    for name in ("priority", "preemptionPolicy"):
        if name in old["spec"]:
            pod["spec"].setdefault(name, old["spec"][name])


def _update_namespace(namespace: JSON, old: JSON) -> None:
    namespace["spec"] = old.get("spec", {})


def _update_persistent_volume_claim(claim: JSON, old: JSON) -> None:
    _normalize_data_sources(claim["spec"], old["spec"])


_UPDATE: dict[str, PrepareUpdate] = {
    "csidrivers.storage.k8s.io": _update_csi_driver,
    "daemonsets.apps": _set_template_generation,
    "endpointslices.discovery.k8s.io": _update_endpoint_slice,
    "persistentvolumeclaims": _update_persistent_volume_claim,
    "nodes": _drop_dynamic_kubelet_config,
    "serviceaccounts": _keep_secret_names_only,
    "leases.coordination.k8s.io": _drop_coordinated_election_fields,
    "pods": _update_pod,
    "namespaces": _update_namespace,
    **extension_strategies.PREPARE_UPDATE,
}

_SERVER_OWNED = ("generation", "selfLink", "creationTimestamp")
_RETAINED_IF_ABSENT = ("uid", "deletionGracePeriodSeconds")


def prepare_for_update(
    served: ServedResource,
    obj: JSON,
    old: JSON,
    sent: JSON,
    fields: DisabledFields = DEFAULT_FIELDS,
    *,
    now: Callable[[], str] = str,
) -> None:
    """Restore what a client may not change through the main resource: status, and the server's part of metadata.

    sent: see request_bodies.Body. now: as of prepare_for_status_update.
    """
    metadata, before = obj["metadata"], old["metadata"]
    for name in _SERVER_OWNED:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    for name in _RETAINED_IF_ABSENT:
        if name in before:
            metadata.setdefault(name, before[name])
    if "deletionTimestamp" in before:  # another value in the request is ignored, without an error
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if served.crd_version is not None:
        served.crd_version.prepare_update(obj, old)
        return
    if served.has_status:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
    name = served.resource.group_resource
    fields.drop(name, obj, old)
    update = strategy_of(served.resource).prepare_update or _UPDATE.get(name)
    if update is not None:
        update(obj, old)
    if name == "devicetaintrules.resource.k8s.io":
        extension_strategies.update_taint_time(obj["spec"]["taint"], old["spec"]["taint"], now)
    counted_field = _GENERATION_METADATA.get(name)
    metadata_changed = counted_field is not None and metadata.get(counted_field) != before.get(counted_field)
    compared = restore_empty_values(obj, sent) if name in _EMPTY_LIST_CHANGES_GENERATION else obj
    if metadata_changed or any(compared.get(field_name) != old.get(field_name) for field_name in served.generation):
        metadata["generation"] = before.get("generation", 0) + 1


_GENERATION_METADATA = {"deployments.apps": "annotations", "endpointslices.discovery.k8s.io": "labels"}
"""Metadata fields whose change increases the generation. Source: the strategies' PrepareForUpdate."""

_EMPTY_LIST_CHANGES_GENERATION = (
    "networkpolicies.networking.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
)
"""Kinds for which [] instead of null increases the generation: their strategies compare with reflect.DeepEqual."""


def drop_empty_lists(served: ServedResource, obj: JSON) -> None:
    """Replace empty lists by None, in place, as a round trip through protobuf does.

    Decoding has dropped the empty lists that JSON omits.
    """
    resource = served.resource
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is not None and (field_tree := _lists_written_when_empty(struct, ())):
        _replace_empty_lists(obj, field_tree)


_FieldTree: TypeAlias = "dict[str, _FieldTree]"


@cache
def _lists_written_when_empty(struct: schema.StructType, ancestors: tuple[str, ...]) -> _FieldTree:
    """Return the fields of a type that are lists which JSON writes even if empty, or that contain such lists."""
    result: _FieldTree = {}
    for field in struct.json.values():
        inner = field.type
        while inner.element is not None:
            inner = inner.element
        subtree: _FieldTree = {}
        if inner.struct is not None and inner.struct.name not in ancestors:  # JSONSchemaProps is recursive
            subtree = _lists_written_when_empty(inner.struct, (*ancestors, struct.name))
        is_list_written_when_empty = field.type.kind == "list" and not field.omit_empty and not field.omit_zero
        if (subtree and field.type.kind != "map") or is_list_written_when_empty:
            result[field.name] = subtree
    return result


def _replace_empty_lists(obj: JSON, field_tree: _FieldTree) -> None:
    for name, subtree in field_tree.items():
        value = obj.get(name)
        if value == []:
            obj[name] = None
        elif subtree and value:
            for item in value if isinstance(value, list) else (value,):
                _replace_empty_lists(item, subtree)


_RESIZE_FIELDS = ("resources", "resizePolicy")


def prepare_for_pod_subresource_update(
    pod: JSON, old: JSON, part: str, fields: DisabledFields = DEFAULT_FIELDS
) -> JSON:
    """Return the pod that a write to pods/ephemeralcontainers or pods/resize stores: `old` with that part of `pod`.

    A resize that adds, removes or renames containers is returned unchanged; validation rejects it.
    """
    spec, before = pod["spec"], dict(old["spec"])
    metadata = {
        **old["metadata"],
        **{name: pod["metadata"][name] for name in _WRITABLE_METADATA if name in pod["metadata"]},
    }
    kinds = ("containers", "initContainers")
    if part == "resize" and any(len(spec.get(kind) or ()) != len(before.get(kind) or ()) for kind in kinds):
        server_owned = {name: old["metadata"][name] for name in _SERVER_OWNED if name in old["metadata"]}
        return {
            **pod,
            "metadata": {**pod["metadata"], **server_owned, "uid": pod["metadata"].get("uid") or metadata["uid"]},
        }
    field = "resources" if part == "resize" else "ephemeralContainers"
    if part != "resize" or fields.resizes_pods:
        before.pop(field, None)
        if field in spec:
            before[field] = spec[field]
    if part == "resize":
        for kind in kinds:
            if kind in spec or kind in before:
                before[kind] = _with_resize_fields(spec.get(kind) or [], before.get(kind) or [])
    if before != old["spec"]:
        metadata["generation"] = metadata.get("generation", 0) + 1
    return {**old, "metadata": metadata, "spec": before}


_WRITABLE_METADATA = ("managedFields", "resourceVersion", "deletionGracePeriodSeconds")


def _with_resize_fields(new: list[JSON], old: list[JSON]) -> list[JSON]:
    if [container.get("name") for container in new] != [container.get("name") for container in old]:
        return new
    return [
        {
            **{name: old_container[name] for name in old_container if name not in _RESIZE_FIELDS},
            **{field: container[field] for field in _RESIZE_FIELDS if field in container},
        }
        for container, old_container in zip(new, old, strict=True)
    ]


def prepare_for_status_update(
    served: ServedResource,
    obj: JSON,
    old: JSON,
    part: str = "status",
    *,
    now: Callable[[], str] = str,
    fields: DisabledFields = DEFAULT_FIELDS,
) -> JSON:
    """Return the object that a status write stores: `old` with the new status; part "finalize": with the new spec.

    Deployments, ReplicaSets and ReplicationControllers keep metadata.annotations (and labels) of the request, too, as
    v1.36 does; all others take the request's labels, annotations, owner references and finalizers as well.
    """
    if served.crd_version is not None:
        return served.crd_version.prepare_status(obj, old)
    if part == "approval":
        return extension_strategies.prepare_for_approval_update(obj, old)
    name, result = served.resource.group_resource, dict(old)
    written_field = "spec" if part == "finalize" else "status"
    if written_field in obj:
        result[written_field] = obj[written_field]
    else:
        result.pop(written_field, None)
    metadata = dict(old["metadata"])
    for field in (
        ("managedFields",) if name in _RESET_METADATA_KINDS else _STATUS_METADATA.get(name, _STATUS_METADATA_DEFAULT)
    ):
        if field in obj["metadata"]:
            metadata[field] = obj["metadata"][field]
        else:
            metadata.pop(field, None)
    if "deletionGracePeriodSeconds" in obj["metadata"]:  # validation reports a change
        metadata["deletionGracePeriodSeconds"] = obj["metadata"]["deletionGracePeriodSeconds"]
    reset = "deletionTimestamp" in old["metadata"] or name in _RESET_METADATA_KINDS or name == "pods"
    if "deletionTimestamp" in obj["metadata"] and not reset:
        metadata["deletionTimestamp"] = obj["metadata"]["deletionTimestamp"]
    result["metadata"] = metadata
    if name == "daemonsets.apps":
        _set_template_generation(result, old)
    if written_field == "status" and fields.drops_status_fields(name):
        result["status"] = {**(result.get("status") or {})}
        fields.drop_status(name, result["status"], old.get("status") or {})
    if name == "podgroups.scheduling.k8s.io" and not (fields.shares_claims or old["spec"].get("resourceClaims")):
        status = {**(result.get("status") or {})}
        status.pop("resourceClaimStatuses", None)
        result["status"] = status
    if name == "resourceclaims.resource.k8s.io":
        result["status"] = {**(result.get("status") or {})}
        drop_deallocated_devices(result["status"], old.get("status") or {})
    if name == "pods" and written_field == "status":
        result["status"] = _with_retained_pod_status_fields(result.get("status") or {}, old.get("status") or {})
    if name == "nodes" and "config" in result.get("status", {}):
        result["status"] = {field: value for field, value in result["status"].items() if field != "config"}
    if name == "persistentvolumes":
        result["status"] = _with_transition_time(result.get("status") or {}, old.get("status") or {}, now)
    return result


def _with_transition_time(status: JSON, old: JSON, now: Callable[[], str]) -> JSON:
    """Set lastPhaseTransitionTime when a volume's phase changes, unless the request sets it."""
    name = "lastPhaseTransitionTime"
    same_phase = status.get("phase") == old.get("phase")
    if same_phase and name in old:
        return {name: old[name], **status}
    if not same_phase and status.get(name) in (None, old.get(name)):
        return {**status, name: now()}
    return status


def _with_retained_pod_status_fields(status: JSON, old: JSON) -> JSON:
    """Retain qosClass, and observedGeneration of the status and its conditions, if the request leaves them out.

    Source: podStatusStrategy.PrepareForUpdate.
    """
    status = {**status}
    for name in ("qosClass", "observedGeneration"):
        if not status.get(name) and old.get(name):
            status[name] = old[name]
    before: dict[str, list[int]] = {}  # by type; a type may occur more than once
    for condition in old.get("conditions") or ():
        before.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    if status.get("conditions"):
        conditions = [{**condition} for condition in status["conditions"]]
        for condition in conditions:
            generations = before.get(condition.get("type", ""))
            generation = generations.pop(0) if generations else 0
            if generation and not condition.get("observedGeneration"):
                condition["observedGeneration"] = generation
        status["conditions"] = conditions
    return status


_RESET_METADATA_KINDS = (
    "devicetaintrules.resource.k8s.io", "podgroups.scheduling.k8s.io", "resourceclaims.resource.k8s.io",
    "servicecidrs.networking.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io", "volumeattachments.storage.k8s.io",
)  # fmt: skip
"""Kinds whose status strategy calls ResetObjectMetaForStatus: the metadata does not change."""
_STATUS_METADATA_DEFAULT = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_STATUS_METADATA: dict[str, tuple[str, ...]] = {
    # pod status: ownerReferences do not change; deployments: labels do not change
    "pods": ("labels", "annotations", "finalizers", "managedFields"),
    "deployments.apps": ("annotations", "finalizers", "ownerReferences", "managedFields"),
}
