"""Validation of writes to a pod's status. Source: ValidatePodStatusUpdate in core/validation/validation.go."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_ip
from kubeloop.devcluster.validation.pod.pod_update import validate_immutable_annotations
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, qualified_name
from kubeloop.kube.values.ip_addresses import sloppy_ip
from kubeloop.kube.values.quantities import parse_quantity

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_GENERATION = "must be a non-negative integer"
_NODE_IS_SET = "may not be set on pods that are already bound to a node"


def validate_pod_status_update(errors: ErrorList, pod: JSON, old: JSON) -> None:
    validate_immutable_annotations(errors, pod, old)
    status, before, spec = pod.get("status", {}), old.get("status", {}), pod["spec"]
    if status == before:
        return
    _validate_conditions(errors, "status.conditions", status.get("conditions") or ())
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        errors.check("status.nominatedNodeName", nominated, dns_subdomain)
        if old["spec"].get("nodeName") and errors.gates.enabled("ClearingNominatedNodeNameAfterBinding"):
            errors.forbidden("status.nominatedNodeName", _NODE_IS_SET)
    if status.get("observedGeneration", 0) < 0:
        errors.invalid("status.observedGeneration", status["observedGeneration"], _GENERATION)
    errors.immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    for kind in _KINDS:
        _validate_transitions(errors, kind, status, before, old["spec"])
    _validate_claim_statuses(errors, "status.resourceClaimStatuses", status.get("resourceClaimStatuses") or (), spec)
    if status.get("extendedResourceClaimStatus") is not None:
        _validate_extended_claim(
            errors, "status.extendedResourceClaimStatus", status["extendedResourceClaimStatus"], spec
        )
    for i, claim in enumerate(status.get("nodeAllocatableResourceClaimStatuses") or ()):
        _validate_node_allocatable(errors, f"status.nodeAllocatableResourceClaimStatuses[{i}]", claim, pod)
    _validate_addresses(errors, "podIPs", "core/v1.PodIP", status, before)
    host_ips = status.get("hostIPs") or ()
    if host_ips and status.get("hostIP", "") != host_ips[0].get("ip", ""):
        errors.invalid("status.hostIPs[0].ip", host_ips[0].get("ip", ""), "must be equal to `hostIP`")
    _validate_addresses(errors, "hostIPs", "core/v1.HostIP", status, before)
    for kind in _KINDS:
        _validate_container_users(errors, kind, status, spec)
    for kind in _KINDS:
        _validate_allocated_resources(errors, kind, status, spec)
    if errors.gates.enabled("ImageVolumeWithDigest"):
        for kind in _KINDS:
            _validate_volume_statuses(errors, kind, status)


_MAX_IMAGE_REFERENCE_BYTES = 256


def _validate_volume_statuses(errors: ErrorList, kind: str, status: JSON) -> None:
    for i, container in enumerate(_statuses(kind, status)):
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            image = (mount.get("volumeStatus") or {}).get("image")
            if image is None:
                continue
            path = f"{_path(kind)}[{i}].volumeMounts[{j}].volumeStatus.imageVolumeStatus.imageRef"
            reference = image.get("imageRef", "")
            errors.require(path, reference, "imageRef must not be empty")
            errors.at_most_bytes(path, reference, _MAX_IMAGE_REFERENCE_BYTES)


_KINDS = ("containers", "initContainers", "ephemeralContainers")


def _statuses(kind: str, status: JSON) -> Sequence[JSON]:
    return status.get(f"{kind[:-1]}Statuses") or ()


def _path(kind: str) -> str:
    return f"status.{kind[:-1]}Statuses"


def _validate_conditions(errors: ErrorList, path: str, conditions: Sequence[JSON]) -> None:
    for i, condition in enumerate(conditions):
        if condition.get("observedGeneration", 0) < 0:
            errors.invalid(f"{path}[{i}].observedGeneration", condition["observedGeneration"], _GENERATION)
        name = condition.get("type", "")
        if name not in _SYSTEM_CONDITIONS:
            errors.check(f"{path}[{i}].Type", name, qualified_name)


def _validate_addresses(errors: ErrorList, name: str, type_name: str, status: JSON, before: JSON) -> None:
    """Validate addresses, at most one of each IP family; those stored before may be in a non-canonical notation."""
    path, addresses = f"status.{name}", status.get(name) or ()
    texts, old_texts = (
        [address.get("ip", "") for address in addresses],
        [address.get("ip", "") for address in before.get(name) or ()],
    )
    for i, text in enumerate(texts):
        validate_ip(errors, f"{path}[{i}]", text, old_texts)
    if len(texts) < 2:
        return
    families = {None if (address := sloppy_ip(text)) is None else address.version for text in texts}
    if None in families:
        at, invalid_ip = next((i, text) for i, text in enumerate(texts) if sloppy_ip(text) is None)
        errors.internal(path, f"failed to check for dual stack with error:invalid IP[{at}]: {invalid_ip}")
    if len(families - {None}) < 2 or None in families or len(texts) > 2:
        errors.invalid(path, list(addresses), "may specify no more than one IP for each IP family", type_name)


def _validate_claim_statuses(errors: ErrorList, path: str, statuses: Sequence[JSON], spec: JSON) -> None:
    names, seen = {resource_claim.get("name", "") for resource_claim in spec.get("resourceClaims", ())}, set[str]()
    for i, status in enumerate(statuses):
        where, name, claim = f"{path}[{i}]", status.get("name", ""), status.get("resourceClaimName")
        if name not in names:
            errors.invalid(f"{where}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        errors.unique(f"{where}.name", name, seen)
        errors.check(f"{where}.resourceClaimName", claim, dns_subdomain)


def _validate_node_allocatable(errors: ErrorList, path: str, claim: JSON, pod: JSON) -> None:
    """Validate what a claim of the pod takes of its node's resources."""
    name = claim.get("resourceClaimName", "")
    errors.require(f"{path}.resourceClaimName", name, "must not be empty")
    entries = (
        *(pod["spec"].get("resourceClaims") or ()),
        *(pod.get("status", {}).get("resourceClaimStatuses") or ()),
    )
    if all(entry.get("resourceClaimName") != name for entry in entries):
        errors.invalid(f"{path}.resourceClaimName", name, "no mapping found in pod reference")
    errors.require(f"{path}.containers", claim.get("containers"), "must not be empty")
    errors.require(f"{path}.resources", claim.get("resources"), "must not be empty")
    for resource, amount in (claim.get("resources") or {}).items():
        where = f"{path}.resources[{resource}]"
        if "/" in resource and "kubernetes.io/" not in resource:
            errors.invalid(where, resource, "must be a node allocatable resource name")
        quantity = parse_quantity(amount)
        if quantity.sign < 0:
            errors.invalid(where, quantity.canonical(), "must be non-negative")


def _validate_extended_claim(errors: ErrorList, path: str, status: JSON, spec: JSON) -> None:
    """Validate the mappings of containers' extended resources to requests of a claim."""
    containers = {
        container.get("name", ""): container
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
    }
    mappings, seen = status.get("requestMappings") or (), set()
    errors.require(f"{path}.requestMappings", mappings, "at least one request mapping is required")
    for i, mapping in enumerate(mappings):
        where = f"{path}.requestMappings[{i}]"
        container, resource, request = (mapping.get(n, "") for n in ("containerName", "resourceName", "requestName"))
        if container not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errors.invalid(f"{where}.containerName", container, detail)
        elif resource not in containers[container].get("resources", {}).get("requests", {}):
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            errors.invalid(f"{where}.resourceName", resource, detail)
        errors.check(f"{path}.requestName", request, dns_label)
        if (container, resource, request) in seen:
            errors.duplicate(f"{where}.containerName", container)
            errors.duplicate(f"{where}.resourceName", resource)
            errors.duplicate(f"{where}.requestName", request)
        seen.add((container, resource, request))
    claim = status.get("resourceClaimName", "")
    errors.check_required(f"{path}.resourceClaimName", claim, dns_subdomain)


def _validate_transitions(errors: ErrorList, kind: str, status: JSON, before: JSON, spec: JSON) -> None:
    """Require a terminated container to stay so, unless it is restarted."""
    containers = [container for part in ("initContainers", "containers") for container in spec.get(part) or ()]
    if kind != "ephemeralContainers" and any(
        rule.get("action") == "RestartAllContainers"
        for container in containers
        for rule in container.get("restartPolicyRules", ())
    ):
        return
    for i, old_status in enumerate(_statuses(kind, before)):
        terminated = old_status.get("state", {}).get("terminated")
        if terminated is None:
            continue
        for new in _statuses(kind, status):
            if new.get("name", "") != old_status.get("name", "") or new.get("state", {}).get("terminated") is not None:
                continue
            if not _should_restart(kind, old_status.get("name", ""), terminated.get("exitCode", 0), spec):
                errors.forbidden(f"{_path(kind)}[{i}].state", "may not be transitioned to non-terminated state")
            if kind != "ephemeralContainers":
                break


def _should_restart(kind: str, name: str, exit_code: int, spec: JSON) -> bool:
    """Return True if a container restarts after this exit code. Source: ContainerShouldRestart in pkg/api/v1/pod."""
    if kind == "ephemeralContainers":
        return False
    container = next((container for container in spec.get(kind) or () if container.get("name", "") == name), None)
    if container is None:
        return False
    policy = container.get("restartPolicy")
    if policy is not None:
        for rule in container.get("restartPolicyRules", ()):
            codes = rule.get("exitCodes")
            if codes is not None and (exit_code in codes.get("values", ())) == (codes.get("operator") == "In"):
                return rule.get("action") in ("Restart", "RestartAllContainers")
    policy = policy or spec.get("restartPolicy", "")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _validate_container_users(errors: ErrorList, kind: str, status: JSON, spec: JSON) -> None:
    system = (spec.get("os") or {}).get("name", "linux")
    for i, container in enumerate(_statuses(kind, status)):
        user, where = (container.get("user") or {}).get("linux"), f"{_path(kind)}[{i}].user.linux"
        if user is None:
            continue
        if system == "windows":
            errors.forbidden(where, "cannot be set for a windows pod")
        elif system == "linux":
            for name in ("uid", "gid"):
                _validate_id(errors, f"{where}.{name}", user.get(name, 0))
            for j, group in enumerate(user.get("supplementalGroups") or ()):
                _validate_id(errors, f"{where}.supplementalGroups[{j}]", group)


def _validate_id(errors: ErrorList, path: str, value: int) -> None:
    if not 0 <= value <= 0x7FFFFFFF:
        errors.invalid(path, value, "must be between 0 and 2147483647, inclusive")


_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_MAX_HEALTH_MESSAGE = 1024


def _validate_allocated_resources(errors: ErrorList, kind: str, status: JSON, spec: JSON) -> None:
    """Validate the health of the devices that are allocated to containers."""
    for i, container in enumerate(_statuses(kind, status)):
        allocated, path = (
            container.get("allocatedResourcesStatus") or (),
            f"{_path(kind)}[{i}].allocatedResourcesStatus",
        )
        if kind == "ephemeralContainers":
            if allocated:
                errors.forbidden(path, "must not be specified in container status")
            continue
        spec_container = next((c for c in spec.get(kind) or () if c.get("name", "") == container.get("name", "")), None)
        for j, resource_status in enumerate(allocated):
            if spec_container is not None:
                _validate_known_resource(
                    errors, f"{path}[{j}].name", resource_status.get("name", ""), spec_container.get("resources", {})
                )
            _validate_device_healths(errors, f"{path}[{j}].resources", resource_status.get("resources") or ())


def _validate_known_resource(errors: ErrorList, path: str, name: str, resources: JSON) -> None:
    if name.startswith("claim:"):
        detail = (
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
            "'claim:<claimName>' if request is empty"
        )
        names = {
            f"claim:{claim.get('name', '')}{'/' + claim['request'] if claim.get('request') else ''}"
            for claim in resources.get("claims") or ()
        }
    else:
        detail, names = "must match one of the container's resource requests", set(resources.get("requests", {}))
    if name not in names:
        errors.invalid(path, name, detail)


def _validate_device_healths(errors: ErrorList, path: str, devices: Sequence[JSON]) -> None:
    seen: set[str] = set()
    for k, device in enumerate(devices):
        where, health, message = f"{path}[{k}]", device.get("health", ""), device.get("message")
        errors.one_of(f"{where}.health", health, _HEALTH)
        if message == "":
            errors.required(f"{where}.message", "must be non-empty if specified")
        elif message is not None and len(message.encode()) > _MAX_HEALTH_MESSAGE:
            errors.too_long(f"{where}.message", _MAX_HEALTH_MESSAGE)
        identity = device.get("resourceID", "")
        errors.unique(f"{where}.resourceID", identity, seen)
