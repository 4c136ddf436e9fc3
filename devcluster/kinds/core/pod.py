"""Pods. Source: pkg/registry/core/pod and pkg/apis/core of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from datetime import datetime

from kubeloop.devcluster.admission import limit_ranger, pod_security, service_account
from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.default_toleration_seconds import add_default_tolerations
from kubeloop.devcluster.admission.pod_resize import check_declared_features, check_pod_resize
from kubeloop.devcluster.admission.pod_topology_labels import add_topology_labels
from kubeloop.devcluster.admission.priority import set_priority
from kubeloop.devcluster.admission.resource_quota import require_compute_resources
from kubeloop.devcluster.admission.runtime_class import apply_runtime_class, check_overhead
from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.selectable_fields import METADATA, field_getter, fields
from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.core.match_label_keys import merge_match_label_keys
from kubeloop.devcluster.printers.formatting import (
    NONE,
    Cells,
    age_since,
    is_terminating,
    object_age,
    object_name,
    spec_of,
    status_of,
)
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.devcluster.registry.preparation import _SERVER_OWNED
from kubeloop.devcluster.serializer.defaulting import default_pod_spec
from kubeloop.devcluster.validation.common.ip_addresses import ip_warning
from kubeloop.devcluster.validation.pod.pod_spec import validate_pod
from kubeloop.devcluster.validation.pod.pod_status import validate_pod_status_update
from kubeloop.devcluster.validation.pod.pod_subresources import (
    validate_ephemeral_containers_update,
    validate_pod_resize,
)
from kubeloop.devcluster.validation.pod.pod_update import validate_pod_update
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    app_armor_warnings,
    set_app_armor_from_annotations,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import hostname_warnings, pod_warnings
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.pod_resources import container_totals, is_pod_level
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.objects.quota_usage import is_terminating as has_deadline


def _requests_from_limits(containers: Iterable[JSON]) -> None:
    for container in containers:
        resources = container.get("resources")
        limits = resources.get("limits") if resources else None
        if limits:
            assert resources is not None
            resources["requests"] = sorted_map({**limits, **resources.get("requests", {})})


def _host_ports(containers: Iterable[JSON]) -> None:
    for container in containers:
        for port in container.get("ports", ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _default_pod_resources(spec: JSON) -> None:
    """Default pod-level requests and limits, if the pod has any."""
    resources = spec["resources"]
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if limits or requests:
        for name, quantity in container_totals(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests and name not in limits:
                limits = {**limits, name: quantity}
    if limits:
        for name, quantity in container_totals(spec, "requests").items():
            if name in ("cpu", "memory") and name not in requests:
                requests = {**requests, name: quantity}
        requests = {**{name: quantity for name, quantity in limits.items() if is_pod_level(name)}, **requests}
    if limits:
        resources["limits"] = sorted_map(limits)
    if requests:
        resources["requests"] = sorted_map(requests)


def _default(pod: JSON) -> None:
    spec = pod["spec"]
    default_pod_spec(spec)
    containers, init_containers = spec.get("containers") or (), spec.get("initContainers", ())
    _requests_from_limits(containers)
    _requests_from_limits(init_containers)
    if spec.get("resources"):
        _default_pod_resources(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork"):
        _host_ports(containers)
        _host_ports(init_containers)
    status = pod.get("status")
    if status:
        _synchronize_first(status, "podIP", "podIPs", "ip")


def _synchronize_first(holder: JSON, single: str, plural: str, key: str) -> None:
    """Synchronize a single field with the first list item (podIP and podIPs[0].ip); the single field wins."""
    first, several = holder.get(single), holder.get(plural)
    if first and (not several or several[0].get(key) != first):
        holder[plural] = [{key: first}]
    elif several and not first:
        holder[single] = several[0].get(key, "")


def _terminated_reason(terminated: JSON) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


@dataclass(slots=True)
class _Restarts:
    """Restarts of containers, and the time of the last one: a metav1.Time, or ""."""

    count: int = 0
    last: str = ""

    def add(self, status: JSON) -> None:
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.count += status.get("restartCount", 0)
        self.last = max(self.last, finished)

    def cell(self, now: datetime) -> str:
        return f"{self.count} ({age_since(self.last, now)} ago)" if self.count and self.last else str(self.count)


def _init_status_text(status: JSON, index: int, count: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    if terminated := state.get("terminated"):
        return f"Init:{_terminated_reason(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{count}"


def _init_container_state(
    pod: JSON, sidecars: Set[str], all_restarts: _Restarts, sidecar_restarts: _Restarts
) -> tuple[str, int]:
    """Return the STATUS of an uninitialized pod ("" for an initialized one) and the number of ready sidecars.

    Adds the containers' restarts to `all_restarts`, those of sidecars also to `sidecar_restarts`.
    """
    ready = 0
    for index, init_container_status in enumerate(status_of(pod).get("initContainerStatuses") or ()):
        all_restarts.add(init_container_status)
        is_sidecar = init_container_status["name"] in sidecars
        if is_sidecar:
            sidecar_restarts.add(init_container_status)
        terminated = (init_container_status.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if not is_sidecar or not init_container_status.get("started"):
            return _init_status_text(init_container_status, index, len(spec_of(pod).get("initContainers") or ())), ready
        ready += bool(init_container_status.get("ready"))
    return "", ready


def _container_state(pod: JSON, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """Return the STATUS that the containers imply, else `reason`, and how many are ready; adds their restarts."""
    ready = 0
    for container_status in reversed(status_of(pod).get("containerStatuses") or ()):
        restarts.add(container_status)
        state = container_status.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            reason = waiting
        elif (terminated := state.get("terminated")) is not None:
            reason = _terminated_reason(terminated)
        elif container_status.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:  # some containers are still running
        reason = "Running" if is_true(pod, "Ready") else "NotReady"
    return reason, ready


def _cells(pod: JSON, now: datetime) -> Cells:
    spec, status = spec_of(pod), status_of(pod)
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    init_containers = spec.get("initContainers") or ()
    sidecars = {
        init_container["name"] for init_container in init_containers if init_container.get("restartPolicy") == "Always"
    }
    restarts, sidecar_restarts = _Restarts(), _Restarts()
    init_reason, ready = _init_container_state(pod, sidecars, restarts, sidecar_restarts)
    reason = init_reason or reason
    if not init_reason or is_true(pod, "Initialized"):
        restarts = sidecar_restarts  # restarts of plain init containers count only during initialization
        reason, running = _container_state(pod, reason, restarts)
        ready += running
    if is_terminating(pod) and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif is_terminating(pod) and phase not in ("Succeeded", "Failed"):
        reason = "Terminating"
    gates = spec.get("readinessGates") or ()
    passed = sum(is_true(pod, gate["conditionType"]) for gate in gates)
    pod_ips = status.get("podIPs") or ()
    return [
        object_name(pod),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        reason,
        restarts.cell(now),
        object_age(pod, now),
        (pod_ips[0].get("ip") if pod_ips else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


_FINISHED = {
    phase: [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
    for phase, message in (("Succeeded", "The pod has completed successfully."), ("Failed", "The pod failed."))
}


def _row_conditions(pod: JSON) -> list[JSON]:
    return _FINISHED.get((pod.get("status") or {}).get("phase", ""), [])


def _status_warnings(pod: JSON, _old: JSON | None) -> Iterator[str]:
    status = pod.get("status") or {}
    for name in ("podIPs", "hostIPs"):
        for i, address in enumerate(status.get(name) or ()):
            yield ip_warning(f"status.{name}[{i}].ip", address.get("ip", ""))


def _warnings(pod: JSON, old: JSON | None) -> list[str]:
    """Return the warnings about a new pod."""
    if old is not None:
        return []
    metadata, spec = pod.get("metadata", {}), pod["spec"]
    return [*hostname_warnings(metadata, "the Pod's hostname"), *pod_warnings(metadata, spec, "metadata", "spec")]


def _prepare_status(pod: JSON, old: JSON, _write: Write) -> None:
    pod["status"] = _with_retained_status_fields(pod.get("status") or {}, old.get("status") or {})


def _prepare_create(pod: JSON, write: Write) -> None:
    merge_match_label_keys(
        pod,
        spread=write.gates.enabled("MatchLabelKeysInPodTopologySpread")
        and write.gates.enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge"),
    )
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
                "lastTransitionTime": write.now(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _prepare_update(pod: JSON, old: JSON, _write: Write) -> None:
    """Retain the fields that admission set on create if an update leaves them out. Source: admission/priority."""
    for name in ("priority", "preemptionPolicy"):
        if name in old["spec"]:
            pod["spec"].setdefault(name, old["spec"][name])


_RESIZE_FIELDS = ("resources", "resizePolicy")


def prepare_part(pod: JSON, old: JSON, part: str, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> JSON:
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
    if part != "resize" or gates.enabled("InPlacePodLevelResourcesVerticalScaling"):
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


def _with_retained_status_fields(status: JSON, old: JSON) -> JSON:
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


def _container_statuses(status: JSON) -> Iterator[JSON]:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(kind) or ()


def _volume_mounts(status: JSON) -> Iterator[JSON]:
    for container in _container_statuses(status):
        yield from container.get("volumeMounts") or ()


def _resource_health(status: JSON) -> Iterator[JSON]:
    for container in _container_statuses(status):
        for resource_status in container.get("allocatedResourcesStatus") or ():
            yield from resource_status.get("resources") or ()


def _admit_create(chain: AdmissionChain, context: RequestContext, pod: JSON) -> None:
    enabled, store, metadata, spec = chain.enabled, chain.store, pod["metadata"], pod["spec"]
    if "LimitRanger" in enabled:
        limit_ranger.set_pod_defaults(store.list(LIMIT_RANGES, metadata["namespace"]), pod)
    if "ServiceAccount" in enabled:
        service_account.admit_pod(store, pod, metadata["namespace"], context.rng)
    if "Priority" in enabled:
        set_priority(store, pod)
    if "DefaultTolerationSeconds" in enabled:
        add_default_tolerations(pod, chain.toleration_seconds)
    if "runtimeClassName" in spec and "RuntimeClass" in enabled:
        apply_runtime_class(store, pod)
    if "nodeName" in spec and chain.copies_topology_labels:
        add_topology_labels(store, metadata, spec["nodeName"])


def _admit_update(chain: AdmissionChain, pod: JSON, _old: JSON) -> None:
    if "DefaultTolerationSeconds" in chain.enabled:
        add_default_tolerations(pod, chain.toleration_seconds)


def _check_create(chain: AdmissionChain, context: RequestContext, pod: JSON) -> None:
    enabled, store, namespace = chain.enabled, chain.store, pod["metadata"]["namespace"]
    if "LimitRanger" in enabled:
        limit_ranger.check_pod(store.list(LIMIT_RANGES, namespace), pod)
    if "ServiceAccount" in enabled:
        service_account.check_pod(store, pod, namespace)
    if "PodSecurity" in enabled:
        pod_security.check_pod(store, pod, context.request.warnings, audit=context.request.audit)
    if "RuntimeClass" in enabled:
        check_overhead(store, pod)


def _check_update(chain: AdmissionChain, context: RequestContext, pod: JSON, old: JSON) -> None:
    enabled, store, subresource = chain.enabled, chain.store, context.info.subresource
    if subresource == "status":
        return
    is_resize, namespace = subresource == "resize", old["metadata"]["namespace"]
    if is_resize and "deletionTimestamp" not in old["metadata"] and "LimitRanger" in enabled:
        limit_ranger.check_pod(store.list(LIMIT_RANGES, namespace), pod)
    if subresource == "ephemeralcontainers" and "ServiceAccount" in enabled:
        service_account.check_ephemeral_containers(store, pod, namespace)
    if "PodSecurity" in enabled:
        pod_security.check_pod(store, pod, context.request.warnings, old, audit=context.request.audit)
    if is_resize and "NodeDeclaredFeatureValidator" in enabled and chain.gates.enabled("NodeDeclaredFeatures"):
        check_declared_features(store, pod, old)
    if is_resize and "PodResizeValidator" in enabled:
        check_pod_resize(store, pod, old)


def _is_charged(pod: JSON, old: JSON, subresource: str) -> bool:
    return subresource == "resize" or (not subresource and has_deadline(pod) != has_deadline(old))


_SELECTABLE_FIELDS = {
    **METADATA,
    **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
    "spec.hostNetwork": field_getter("spec.hostNetwork", "false"),
    "status.podIPs": lambda _pod: "",  # selectable, but ToSelectableFields never sets it
}


def _grace_seconds(pod: JSON, requested: int | None) -> int:
    """Return the grace period of a deletion: as requested, else terminationGracePeriodSeconds, default 30."""
    if "deletionTimestamp" in pod["metadata"]:
        return requested or 0  # a second deletion without a period changes nothing
    spec = pod["spec"]
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if requested is None else requested


STRATEGY = Strategy(
    default=_default,
    unowned={"status": {"f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}}},
    template_path=(),
    gated_status_fields=(
        ("DRAExtendedResource", drop_fields((itself, ("extendedResourceClaimStatus",)))),
        ("DRANodeAllocatableResources", drop_fields((itself, ("nodeAllocatableResourceClaimStatuses",)))),
        ("ImageVolumeWithDigest", drop_fields((_volume_mounts, ("volumeStatus",)))),
        ("ResourceHealthStatus", drop_fields((_container_statuses, ("allocatedResourcesStatus",)))),
        ("ResourceHealthStatusMessage", drop_fields((_resource_health, ("message",)))),
        ("InPlacePodLevelResourcesVerticalScaling", drop_fields((itself, ("resources", "allocatedResources")))),
    ),
    prepare_create=_prepare_create,
    sets_initial_status=True,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    prepare_subresources={
        "ephemeralcontainers": lambda pod, old, _write: prepare_part(pod, old, "ephemeralcontainers"),
        "resize": lambda pod, old, write: prepare_part(pod, old, "resize", write.gates),
    },
    status_metadata=("labels", "annotations", "finalizers"),
    validate=validate_pod,
    validate_update=validate_pod_update,
    validate_subresources={
        "status": validate_pod_status_update,
        "ephemeralcontainers": validate_ephemeral_containers_update,
        "resize": validate_pod_resize,
    },
    update_steps="uws",
    warnings_as_sent=app_armor_warnings,
    warnings=_warnings,
    status_warnings=_status_warnings,
    admit_create=_admit_create,
    admit_update=_admit_update,
    check_create=_check_create,
    check_update=_check_update,
    is_charged=_is_charged,
    check_quota=require_compute_resources,
    grace_seconds=_grace_seconds,
    cells=_cells,
    row_conditions=_row_conditions,
    selectable_fields=_SELECTABLE_FIELDS,
)
