"""Validation of pods/ephemeralcontainers and pods/resize. Source: core/validation/validation.go.

The strategies have restored the fields that the subresource may not change.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.go_values import struct_differences
from kubeloop.devcluster.validation.pod.pod_spec import validate_pod_metadata_and_spec
from kubeloop.devcluster.validation.pod.pod_update import validate_immutable_annotations
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.quantities import parse_quantity

_RESIZABLE = ("cpu", "memory")
_MIRROR = "kubernetes.io/config.mirror"


def is_write_refused(subresource: str, old: JSON) -> bool:
    """Return True if every write to the subresource of this pod is refused; it ends the validation."""
    if subresource not in ("resize", "ephemeralcontainers"):
        return False
    windows = subresource == "resize" and (old["spec"].get("os") or {}).get("name") == "windows"
    return windows or _MIRROR in old["metadata"].get("annotations", {})


def validate_ephemeral_containers_update(errors: ErrorList, pod: JSON, old: JSON) -> None:
    """Allow new ephemeral containers; existing ones may not change."""
    if _MIRROR in old["metadata"].get("annotations", {}):
        errors.forbidden("[]", "static pods do not support ephemeral containers")
        return
    validate_pod_metadata_and_spec(errors, pod, old)
    validate_immutable_annotations(errors, pod, old)
    path = "spec.ephemeralContainers"
    now = {
        ephemeral_container.get("name"): ephemeral_container
        for ephemeral_container in pod["spec"].get("ephemeralContainers", ())
    }
    for before in old["spec"].get("ephemeralContainers", ()):
        name = before.get("name", "")
        if name not in now:
            errors.forbidden(path, f"existing ephemeral containers {quoted(name)} may not be removed\n")
        elif now[name] != before:
            difference = struct_differences(before, now[name], "core/v1.EphemeralContainer")
            errors.forbidden(path, f"existing ephemeral containers {quoted(name)} may not be changed\n{difference}")


def validate_pod_resize(errors: ErrorList, pod: JSON, old: JSON) -> None:
    """Allow changes of cpu and memory of the pod and its containers that keep the pod's QoS class."""
    spec, before, path = pod["spec"], old["spec"], "spec"
    if _MIRROR in old["metadata"].get("annotations", {}):
        errors.forbidden("[]", "static pods cannot be resized")
        return
    if (before.get("os") or {}).get("name") == "windows":
        errors.forbidden("[]", "windows pods cannot be resized")
        return
    validate_pod_metadata_and_spec(errors, pod, old)
    status = old.get("status", {})
    if (status.get("qosClass") or qos_class(before)) != qos_class(spec):
        detail = "Pod QOS Class may not change as a result of resizing"
        errors.invalid(path, pod.get("status", {}).get("qosClass", ""), detail)
    running = next((c for c in status.get("containerStatuses") or () if "running" in c.get("state", {})), None)
    if running is not None and running.get("resources") is None:
        errors.forbidden(path, "Pod running on node without support for resize")
    munged = dict(spec)
    if any(_has_pod_level_resources(pod_spec) for pod_spec in (spec, before)):
        if not errors.gates.enabled("InPlacePodLevelResourcesVerticalScaling"):
            errors.forbidden("[]", _NO_POD_LEVEL_RESIZE)
            return
        _validate_pod_level_resources(errors, path, munged, before)
    if status.get("nodeAllocatableResourceClaimStatuses"):
        errors.forbidden(path, "pods with node allocatable resource claims cannot be resized")
    if _validate_container_order(errors, path, spec, before):
        return
    resizes_init_containers = errors.gates.enabled("InPlacePodVerticalScalingInitContainers")
    pairs = {kind: list(zip(spec.get(kind) or (), before.get(kind) or (), strict=True)) for kind in _KINDS}
    for kind in _KINDS:
        for i, (container, old_container) in enumerate(pairs[kind]):
            where = f"{path}.{kind}[{i}].resources"
            is_sidecar = old_container.get("restartPolicy") == "Always"
            if kind == "initContainers" and not is_sidecar and not resizes_init_containers:
                continue
            resources, old_resources = container.get("resources", {}), old_container.get("resources", {})
            _validate_no_resource_removed(errors, where, resources, old_resources, "resource {} cannot be removed")
    for container, old_container in pairs["containers"]:
        if not _equal(_with_old_resources(container, old_container), old_container):
            errors.forbidden(path, "only cpu and memory resources are mutable")
    for i, (container, old_container) in enumerate(pairs["initContainers"]):
        where = f"{path}.initContainers[{i}]"
        if container.get("restartPolicy") != "Always" and not resizes_init_containers:
            if not _equal(container, old_container):
                errors.forbidden(path, "resources for non-sidecar init containers are immutable")
            continue
        if not _equal(_with_old_resources(container, old_container), old_container):
            errors.forbidden(where, "only cpu and memory resources for init or sidecar containers are mutable")
        if container != old_container and container.get("restartPolicy") != "Always":
            for policy in container.get("resizePolicy", ()):
                if policy.get("restartPolicy") == "RestartContainer":
                    detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                    errors.forbidden(where, detail)
    other_fields, old_other_fields = (
        {name: value for name, value in pod_spec.items() if name not in _KINDS} for pod_spec in (munged, before)
    )
    if not errors and (
        not _equal(other_fields, old_other_fields) or ("resources" in other_fields) != ("resources" in old_other_fields)
    ):
        errors.forbidden(path, "only cpu and memory resources are mutable")


_KINDS = ("initContainers", "containers")
_NO_POD_LEVEL_RESIZE = (
    "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled"
    " feature gate is disabled"
)


def _has_pod_level_resources(spec: JSON) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _validate_pod_level_resources(errors: ErrorList, path: str, munged: JSON, before: JSON) -> None:
    """Validate the pod-level resources, and restore the old cpu and memory in `munged`."""
    old, new = before.get("resources"), munged.get("resources")
    if new is None:
        if old is not None:
            errors.forbidden(f"{path}.resources", "pod-level resources cannot be removed")
        return
    if old is not None:
        _validate_no_resource_removed(errors, f"{path}.resources", new, old, "pod-level resource {} cannot be removed")
    munged["resources"] = {**new, **_with_old_amounts(new, old or {})}
    if old is None and not any(munged["resources"].values()):
        del munged["resources"]
    if not _equal(munged.get("resources") or {}, old or {}):
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level")


def _validate_container_order(errors: ErrorList, path: str, spec: JSON, before: JSON) -> bool:
    """Report containers that were added, removed, renamed or reordered; return True if there are any."""
    count = len(errors)
    for kind in ("containers", "initContainers"):
        new, old = spec.get(kind) or (), before.get(kind) or ()
        if len(new) != len(old):
            errors.forbidden(f"{path}.{kind}", f"{kind} may not be added or removed on resize")
            continue
        for i, (container, old_container) in enumerate(zip(new, old, strict=True)):
            if container.get("name", "") != old_container.get("name", ""):
                errors.forbidden(f"{path}.{kind}[{i}].name", f"{kind} may not be renamed or reordered on resize")
    return len(errors) > count


def _validate_no_resource_removed(errors: ErrorList, path: str, new: JSON, old: JSON, detail: str) -> None:
    for part in ("requests", "limits"):
        if set(old.get(part, {})) - set(new.get(part, {})):
            errors.forbidden(f"{path}.{part}", detail.format(part))


def _with_old_amounts(new: JSON, old: JSON) -> JSON:
    """Return the new limits and requests with the old amounts of resizable resources."""
    result: JSON = {}
    for part in ("limits", "requests"):
        amounts = {name: amount for name, amount in new.get(part, {}).items() if name not in _RESIZABLE}
        result[part] = amounts | {name: amount for name, amount in old.get(part, {}).items() if name in _RESIZABLE}
    return result


def _with_old_resources(new: JSON, old: JSON) -> JSON:
    """Return the new container with the old amounts of resizable resources; claims are dropped."""
    return {**new, "resources": _with_old_amounts(new.get("resources", {}), old.get("resources", {}))}


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values, quantities by their amount; an empty list or map equals an absent one."""
    if type(one) is dict and type(other) is dict:
        return all(
            _equal_amounts(one.get(name), other.get(name)) if name in ("limits", "requests") else
            _equal(one.get(name), other.get(name))
            for name in {**one, **other}
        )  # fmt: skip
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other or (one in (None, [], {}) and other in (None, [], {}))


def _equal_amounts(one: JSON | None, other: JSON | None) -> bool:
    one, other = one or {}, other or {}
    return one.keys() == other.keys() and all(
        parse_quantity(one[name]).compare(parse_quantity(other[name])) == 0 for name in one
    )
