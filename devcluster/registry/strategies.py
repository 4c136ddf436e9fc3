"""What each kind's strategy does to an object on its way into the store: fields that clients may not set.

Source: the strategies under pkg/registry of Kubernetes v1.36. Objects have been decoded and defaulted; they are the
request's own, so they are changed in place. Deciding functions only: the server owns allocation and time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.registry import extension_strategies
from kubeloop.devcluster.registry.disabled_fields import drop_disabled_fields, drop_disabled_status_fields
from kubeloop.devcluster.registry.match_label_keys import merge_match_label_keys
from kubeloop.devcluster.registry.service_fields import drop_internal_traffic_policy, drop_type_dependent_fields
from kubeloop.devcluster.serializer.empty_values import restore_empty_values
from kubeloop.devcluster.validation.pod.security_profile_annotations import set_app_armor_from_annotations
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.qos import qos_class

PrepareCreate = Callable[[JSON, str], None]
PrepareUpdate = Callable[[JSON, JSON], None]


# --- create -----------------------------------------------------------------------------------------------------------


def _create_pod(pod: JSON, now: str) -> None:
    pod["metadata"]["generation"] = 1
    merge_match_label_keys(pod)
    set_app_armor_from_annotations(pod)
    given = pod.get("status", {}).get("qosClass")
    pod["status"] = {"phase": "Pending", "qosClass": given or qos_class(pod["spec"])}
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
    if name := namespace["metadata"].get("name"):  # without one it is refused below
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
    """dataSource and dataSourceRef are the same thing; the older takes claims and snapshots alone, and no namespace."""
    before = before or {}
    if (spec.get("dataSourceRef") or {}).get("namespace") and before.get("dataSourceRef") is None:
        spec.pop("dataSourceRef")  # needs a feature that is off
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
    """A feature that is gone. The client may set all other fields of the status, as kubelets do."""
    node.get("spec", {}).pop("configSource", None)
    node.get("status", {}).pop("config", None)


def _drop_prevent_scheduling_if_missing(driver: JSON, _now: str) -> None:
    """A feature that is off in v1.36."""
    driver.get("spec", {}).pop("preventPodSchedulingIfMissing", None)


def _update_csi_driver(driver: JSON, old: JSON) -> None:
    """Generations are counted from the first change on, not from the creation."""
    if "preventPodSchedulingIfMissing" not in old.get("spec", {}):
        _drop_prevent_scheduling_if_missing(driver, "")
    if driver.get("spec") != old.get("spec"):
        driver["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _drop_deprecated_topology(obj: JSON, _now_or_old: Any = None) -> None:
    """A field of the version before, of which this one takes the zone alone."""
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _update_endpoint_slice(endpoint_slice: JSON, old: JSON) -> None:
    """A new generation, though all that is new is what the slice goes without."""
    if endpoint_slice.get("endpoints") != old.get("endpoints"):
        endpoint_slice["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    _drop_deprecated_topology(endpoint_slice)


def _drop_coordinated_election_fields(lease: JSON, _now_or_old: Any = None) -> None:
    """Fields of leader elections that the server coordinates: a feature that is off."""
    for name in ("strategy", "preferredHolder"):
        lease.get("spec", {}).pop(name, None)


def _keep_secret_names_only(account: JSON, _now_or_old: Any = None) -> None:
    """Of the references to secrets, names alone count."""
    if account.get("secrets"):
        account["secrets"] = [{name: secret[name] for name in ("name",) if name in secret} for secret in account["secrets"]]


def _create_job(job: JSON, _now: str) -> None:
    """A selector that only this Job's pods meet, unless its maker has one. Source: jobStrategy.generateSelector."""
    spec, metadata = job["spec"], job["metadata"]
    job["status"] = {}
    if spec.get("manualSelector"):
        return
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
    selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selected.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])


def _drop_max_unavailable(stateful_set: JSON, _now_or_old: Any = None) -> None:
    """A feature that is off in v1.36 (MaxUnavailableStatefulSet)."""
    (stateful_set["spec"].get("updateStrategy", {}).get("rollingUpdate") or {}).pop("maxUnavailable", None)


def _create_stateful_set(stateful_set: JSON, _now: str) -> None:
    _drop_max_unavailable(stateful_set)
    stateful_set["status"] = {"replicas": 0, "availableReplicas": 0}


_CREATE: dict[str, PrepareCreate] = {
    "csidrivers.storage.k8s.io": _drop_prevent_scheduling_if_missing,
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


def prepare_for_create(served: Served, obj: JSON, now: str, user: JSON) -> None:
    """Reset what a client may not set, and set what only the server does. `now` as it stands in objects."""
    if served.custom is not None:
        served.custom.prepare_create(obj)
        return
    name = served.resource.group_resource
    drop_disabled_fields(name, obj)
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
    """The generation of a DaemonSet's template is a field of the server, which its clients see as an annotation."""
    annotations = {**daemon_set["metadata"].get("annotations", {})}  # what a patch leaves is the stored object's own
    daemon_set["metadata"]["annotations"] = annotations
    if old is None:
        given = annotations.get(_TEMPLATE_GENERATION, "")
        annotations[_TEMPLATE_GENERATION] = given if given.isdecimal() and int(given) > 0 else "1"
        return
    before = old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1")
    changed = daemon_set["spec"]["template"] != old["spec"]["template"]
    annotations[_TEMPLATE_GENERATION] = str(int(before) + 1) if changed else before


def is_defaulted_on_read(served: Served, obj: JSON) -> bool:
    """Does a new object, not yet prepared, get defaults that kube-apiserver adds each time it reads it, until a write?

    Claims do; Jobs without labels get those of the template that the server has made.
    """
    name = served.resource.group_resource
    return name == "persistentvolumeclaims" or (name == "jobs.batch" and not obj["metadata"].get("labels"))


def default_on_read(name: str, obj: JSON) -> None:
    """What defaulting does in place to a valid object of this group resource once it is stored and read."""
    if name == "services":
        drop_internal_traffic_policy(obj["spec"])
    elif name in ("jobs.batch", "replicationcontrollers"):
        labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


# --- update -----------------------------------------------------------------------------------------------------------


def _update_pod(pod: JSON, old: JSON) -> None:
    """What admission has given a pod stays, though the update leaves it out. Source: admission/priority."""
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
    "statefulsets.apps": _drop_max_unavailable,
    "nodes": _drop_dynamic_kubelet_config,
    "serviceaccounts": _keep_secret_names_only,
    "leases.coordination.k8s.io": _drop_coordinated_election_fields,
    "pods": _update_pod,
    "namespaces": _update_namespace,
    "services": drop_type_dependent_fields,
    **extension_strategies.PREPARE_UPDATE,
}

_SERVER_OWNED = ("generation", "selfLink", "creationTimestamp")
_RETAINED_IF_ABSENT = ("uid", "deletionGracePeriodSeconds")


def prepare_for_update(served: Served, obj: JSON, old: JSON, sent: JSON) -> None:
    """Keep what a client may not change through the main resource: status, and the server's part of metadata.

    sent: see bodies.Body.
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
    if "deletionTimestamp" in before:  # who sends another one is not told that it does not count
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if served.custom is not None:
        served.custom.prepare_update(obj, old)
        return
    if served.has_status:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
    name = served.resource.group_resource
    drop_disabled_fields(name, obj)
    update = _UPDATE.get(name)
    if update is not None:
        update(obj, old)
    watched = _GENERATION_METADATA.get(name)
    annotated = watched is not None and metadata.get(watched) != before.get(watched)
    detail = restore_empty_values(obj, sent) if name in _EMPTY_LIST_CHANGES_GENERATION else obj
    if annotated or any(detail.get(each) != old.get(each) for each in served.generation):
        metadata["generation"] = before.get("generation", 0) + 1


_GENERATION_METADATA = {"deployments.apps": "annotations", "endpointslices.discovery.k8s.io": "labels"}
"""Metadata whose change is a new generation. Source: the strategies' PrepareForUpdate."""

_EMPTY_LIST_CHANGES_GENERATION = (
    "networkpolicies.networking.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
)
"""Of which an empty list in place of none is a new generation: their strategies compare with reflect.DeepEqual."""


def drop_empty_lists(served: Served, obj: JSON) -> None:
    """Turn lists without items into none, in place: what is stored in protobuf comes back so. Decoding drops those that
    JSON does not show."""
    resource = served.resource
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is not None and (shown := _lists_written_when_empty(struct, ())):
        _replace_empty_lists(obj, shown)


_FieldTree: TypeAlias = "dict[str, _FieldTree]"


@cache
def _lists_written_when_empty(struct: schema.StructType, within: tuple[str, ...]) -> _FieldTree:
    """The fields that are lists which JSON shows also where nothing is in them, or have such ones below."""
    result: _FieldTree = {}
    for field in struct.json.values():
        inner = field.type
        while inner.element is not None:
            inner = inner.element
        below: _FieldTree = {}
        if inner.struct is not None and inner.struct.name not in within:  # JSONSchemaProps are within themselves
            below = _lists_written_when_empty(inner.struct, (*within, struct.name))
        is_shown = field.type.kind == "list" and not field.omit_empty and not field.omit_zero
        if (below and field.type.kind != "map") or is_shown:
            result[field.name] = below
    return result


def _replace_empty_lists(obj: JSON, shown: _FieldTree) -> None:
    for name, below in shown.items():
        value = obj.get(name)
        if value == []:
            obj[name] = None
        elif below and value:
            for each in value if isinstance(value, list) else (value,):
                _replace_empty_lists(each, below)


_RESIZE_FIELDS = ("resources", "resizePolicy")


def prepare_for_pod_subresource_update(pod: JSON, old: JSON, part: str) -> JSON:
    """What a write to pods/ephemeralcontainers or pods/resize stores: the old pod with that part of the new one.

    A resize that adds, removes or renames containers is left as it is, for validation to refuse.
    """
    spec, before = pod["spec"], dict(old["spec"])
    metadata = {**old["metadata"], **{name: pod["metadata"][name] for name in _WRITABLE_METADATA if name in pod["metadata"]}}
    kinds = ("containers", "initContainers")
    if part == "resize" and any(len(spec.get(kind) or ()) != len(before.get(kind) or ()) for kind in kinds):
        kept = {name: old["metadata"][name] for name in _SERVER_OWNED if name in old["metadata"]}
        return {**pod, "metadata": {**pod["metadata"], **kept, "uid": pod["metadata"].get("uid") or metadata["uid"]}}
    field = "resources" if part == "resize" else "ephemeralContainers"
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
    if [each.get("name") for each in new] != [each.get("name") for each in old]:
        return new
    return [
        {**{name: was[name] for name in was if name not in _RESIZE_FIELDS}, **{n: each[n] for n in _RESIZE_FIELDS if n in each}}
        for each, was in zip(new, old, strict=True)
    ]


def prepare_for_status_update(
    served: Served, obj: JSON, old: JSON, part: str = "status", *, now: Callable[[], str] = str
) -> JSON:
    """What a write to the status subresource stores: the old object with the new status. (finalize: with the new spec.)

    Deployments, ReplicaSets and ReplicationControllers keep metadata.annotations (and labels) of the request, too, as
    v1.36 lets them; all others take the request's labels, annotations, owner references and finalizers as well.
    """
    if served.custom is not None:
        return served.custom.prepare_status(obj, old)
    if part == "approval":
        return extension_strategies.prepare_for_approval_update(obj, old)
    name, result = served.resource.group_resource, dict(old)
    written = "spec" if part == "finalize" else "status"
    if written in obj:
        result[written] = obj[written]
    else:
        result.pop(written, None)
    metadata = dict(old["metadata"])
    for field in ("managedFields",) if name in _RESET_METADATA_KINDS else _STATUS_METADATA.get(name, _STATUS_METADATA_DEFAULT):
        if field in obj["metadata"]:
            metadata[field] = obj["metadata"][field]
        else:
            metadata.pop(field, None)
    if "deletionGracePeriodSeconds" in obj["metadata"]:  # not reset: validation sees if it has changed
        metadata["deletionGracePeriodSeconds"] = obj["metadata"]["deletionGracePeriodSeconds"]
    reset = "deletionTimestamp" in old["metadata"] or name in _RESET_METADATA_KINDS or name == "pods"
    if "deletionTimestamp" in obj["metadata"] and not reset:
        metadata["deletionTimestamp"] = obj["metadata"]["deletionTimestamp"]
    result["metadata"] = metadata
    if name == "daemonsets.apps":
        _set_template_generation(result, old)
    if name == "pods" and written == "status":
        result["status"] = _with_retained_pod_status_fields(result.get("status") or {}, old.get("status") or {})
    if name == "nodes" and "config" in result.get("status", {}):
        result["status"] = {field: each for field, each in result["status"].items() if field != "config"}
    if name == "persistentvolumes":
        result["status"] = _with_transition_time(result.get("status") or {}, old.get("status") or {}, now)
    return result


def _with_transition_time(status: JSON, old: JSON, now: Callable[[], str]) -> JSON:
    """When a volume's phase changes, the server says when, unless the request does."""
    name = "lastPhaseTransitionTime"
    same = status.get("phase") == old.get("phase")
    if same and name in old:
        return {name: old[name], **status}
    if not same and status.get(name) in (None, old.get(name)):
        return {**status, name: now()}
    return status


def _with_retained_pod_status_fields(status: JSON, old: JSON) -> JSON:
    """qosClass, and observedGeneration of the status and of its conditions, stay where the request leaves them out.

    Source: podStatusStrategy.PrepareForUpdate.
    """
    status = {**status}
    drop_disabled_status_fields(status)
    for name in ("qosClass", "observedGeneration"):
        if not status.get(name) and old.get(name):
            status[name] = old[name]
    before: dict[str, list[int]] = {}  # by type: validation lets a type stand more than once
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
    "resourceclaims.resource.k8s.io", "servicecidrs.networking.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io", "volumeattachments.storage.k8s.io",
)  # fmt: skip
"""Kinds whose status strategy calls ResetObjectMetaForStatus: metadata stay as they are."""
_STATUS_METADATA_DEFAULT = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_STATUS_METADATA: dict[str, tuple[str, ...]] = {
    # pod status: ownerReferences stay as they are; deployments: labels stay as they are
    "pods": ("labels", "annotations", "finalizers", "managedFields"),
    "deployments.apps": ("annotations", "finalizers", "ownerReferences", "managedFields"),
}
