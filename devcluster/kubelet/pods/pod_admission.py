"""Pod admission of the kubelet: what it refuses by spec and node, with the scheduler's checks of resources, node
affinity, host ports and taints.

Pure functions on plain JSON. Resource amounts are integers: cpu in millicores, everything else in units (bytes, pods).
Source: pkg/kubelet/lifecycle/predicate.go, sysctl, eviction and component-helpers' resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.pod_resources import pod_requests
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE, NO_SCHEDULE, is_tolerated
from kubeloop.kube.selectors.node_selectors import RequiredNodeAffinity
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values import quantities

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_MEMORY_PRESSURE = api_types.Taint(key="node.kubernetes.io/memory-pressure", effect=NO_SCHEDULE)
_CRITICAL_PRIORITY = 2_000_000_000
_OS_LABEL = "kubernetes.io/os"
_SAFE_SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    )
)
"""Sysctls that a kubelet admits by default, on a kernel of 4.15 or later."""

Amounts = dict[str, int]
HostPort = tuple[str, str, int]  # protocol, address ("0.0.0.0": all addresses), port


class AdmissionRejection(msgspec.Struct, frozen=True):
    """Reason and message with which a node rejects a pod; status.reason and status.message of the failed pod."""

    reason: str
    message: str


def amount(resource: str, value: str | float) -> int:
    return quantities.milli_value(value) if resource == "cpu" else quantities.value(value)


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """Return a ResourceList as integers."""
    return {name: amount(name, value) for name, value in (resources or {}).items()}


def requested_amounts(pod: JSON) -> Amounts:
    """Return the requests of the pod as integers, including one of "pods".

    Without the extended resources of containers for which the scheduler has allocated devices, and with what the pod's
    claims take of the node's resources.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    special = status.get("extendedResourceClaimStatus")
    if special:
        spec = _without_devices(spec, special["requestMappings"])
    requested = {**amounts(pod_requests(spec)), "pods": 1}
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    for claim in status.get("nodeAllocatableResourceClaimStatuses") or ():
        for name, value in amounts(claim["resources"]).items():
            if name not in pod_level:
                requested[name] = requested.get(name, 0) + value
    return requested


def _without_devices(spec: JSON, mappings: Iterable[JSON]) -> JSON:
    allocated = {(mapping["containerName"], mapping["resourceName"]) for mapping in mappings}
    changed = {
        field: [
            {
                **container,
                "resources": {
                    "requests": {
                        name: quantity
                        for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items()
                        if (container["name"], name) not in allocated
                    }
                },
            }
            for container in spec.get(field) or ()
        ]
        for field in ("containers", "initContainers")
    }
    return {**spec, **changed}


def host_ports(pod: JSON) -> list[HostPort]:
    """Return the host ports of the pod's containers."""
    spec = pod["spec"]
    running = [*(spec.get("containers") or ())]
    running += [
        container for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0", port["hostPort"])
        for container in running
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def ports_conflict(requested: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Return True if a requested port is used: same protocol, port and address, or one of them at all addresses."""
    taken: dict[tuple[str, int], set[str]] = {}
    for protocol, address, port in used:
        taken.setdefault((protocol, port), set()).add(address)
    for protocol, address, port in requested:
        addresses = taken.get((protocol, port))
        if addresses and (address == "0.0.0.0" or address in addresses or "0.0.0.0" in addresses):
            return True
    return False


def fits_node_affinity(pod: JSON, node: JSON) -> bool:
    """Return True if the node matches the pod's nodeSelector and required node affinity."""
    spec = pod["spec"]
    selector, affinity = spec.get("nodeSelector") or {}, (spec.get("affinity") or {}).get("nodeAffinity")
    if not selector and not affinity:
        return True
    typed = api_types.convert(api_types.Affinity, {"nodeAffinity": affinity or {}})
    metadata = node["metadata"]
    return RequiredNodeAffinity(selector, typed).matches(metadata["name"], metadata.get("labels") or {})


def rejection(
    pod: JSON,
    node: JSON,
    requested: Mapping[str, int],
    *,
    used: Mapping[str, int],
    allocatable: Mapping[str, int],
    used_ports: Iterable[HostPort],
    restricted: bool = True,
) -> AdmissionRejection | None:
    """Return why `node` must reject `pod`, None if it admits it. used, used_ports: those of its other pods.

    restricted: False if the caller knows that is_restricted(node) is.
    """
    return (
        (_under_pressure(pod, node) if restricted else None)
        or _unsupported(pod, node)
        or lacking_resource(requested, used=used, allocatable=allocatable)
        or _failed_predicate(pod, node, used_ports)
        or (_untolerated_taint(pod, node) if restricted else None)
    )


def is_restricted(node: JSON) -> bool:
    """Return True for a node under pressure, or with NoExecute taints."""
    return bool(_pressures(node) or _no_execute_taints(node))


def _pressures(node: JSON) -> list[str]:
    return [
        condition["type"]
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition.get("status") == "True" and condition.get("type") in _PRESSURES
    ]


def _no_execute_taints(node: JSON) -> list[JSON]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == NO_EXECUTE]


def _under_pressure(pod: JSON, node: JSON) -> AdmissionRejection | None:
    """Return the rejection by the eviction manager of a node under pressure, which admits critical pods only.

    Under memory pressure alone, it admits pods with requests and those that tolerate the taint as well.
    """
    pressures = _pressures(node)
    if not pressures or (pod["spec"].get("priority") or 0) >= _CRITICAL_PRIORITY:
        return None
    if pressures == ["MemoryPressure"] and (
        qos_class(pod["spec"]) != "BestEffort" or is_tolerated(_MEMORY_PRESSURE, _tolerations(pod))
    ):
        return None
    return AdmissionRejection("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")


def _forbidden_sysctl(spec: JSON, security_context: JSON) -> AdmissionRejection | None:
    """Return the rejection for a sysctl that is not safe, or belongs to a namespace of the host."""
    for sysctl in security_context.get("sysctls") or ():
        name = _normalized_sysctl(sysctl["name"])
        problem = ""
        if name not in _SAFE_SYSCTLS:
            problem = "not allowlisted"
        elif name.startswith("kernel.") and spec.get("hostIPC"):
            problem = "not allowed with host IPC enabled"
        elif name.startswith("net.") and spec.get("hostNetwork"):
            problem = "not allowed with host Net enabled"
        if problem:
            return AdmissionRejection("SysctlForbidden", f"forbidden sysctl: {quoted(name)} {problem}")
    return None


def _normalized_sysctl(name: str) -> str:
    """Return the name with dots as separators; one whose first separator is a slash has dots in its parts."""
    first = next((sign for sign in name if sign in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def _unsupported(pod: JSON, node: JSON) -> AdmissionRejection | None:
    """Return the rejection for a sysctl, an operating system or a policy that the node does not have."""
    spec, labels = pod["spec"], pod["metadata"].get("labels")
    security_context = spec.get("securityContext")
    if security_context and (rejected := _forbidden_sysctl(spec, security_context)):
        return rejected
    if (labels and _OS_LABEL in labels) or "os" in spec:
        system = (node["metadata"].get("labels") or {}).get(_OS_LABEL) or "linux"
        if (labels or {}).get(_OS_LABEL, system) != system:
            message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
            return AdmissionRejection("PodOSSelectorNodeLabelDoesNotMatch", message)
        if (spec.get("os") or {}).get("name", system) != system:
            message = "Failed to admit pod as the OS field doesn't match node OS"
            return AdmissionRejection("PodOSNotSupported", message)
    if security_context and security_context.get("supplementalGroupsPolicy") == "Strict":
        features = (node.get("status") or {}).get("features") or {}
        if not features.get("supplementalGroupsPolicy"):
            message = "SupplementalGroupsPolicy=Strict is not supported in this node"
            return AdmissionRejection("SupplementalGroupsPolicyNotSupported", message)
    return None


def lacking_resource(
    requested: Mapping[str, int], *, used: Mapping[str, int], allocatable: Mapping[str, int]
) -> AdmissionRejection | None:
    """Return the rejection for the first resource of which a node has too little, None if it has enough.

    Extended resources that the node does not have are ignored.
    """
    first = ("pods", "cpu", "memory", "ephemeral-storage")
    for name in (*first, *(name for name in requested if name not in first)):
        requested_amount = requested.get(name, 0)
        if not requested_amount or ("/" in name and name not in allocatable):
            continue
        free = allocatable.get(name, 0) - used.get(name, 0)
        if requested_amount > free:
            return AdmissionRejection(
                f"OutOf{name}",
                f"Node didn't have enough resource: {name}, requested: {requested_amount}, used: {used.get(name, 0)}, "
                f"capacity: {allocatable.get(name, 0)}",
            )
    return None


def _failed_predicate(pod: JSON, node: JSON, used_ports: Iterable[HostPort]) -> AdmissionRejection | None:
    if not fits_node_affinity(pod, node):
        return AdmissionRejection(
            "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    if ports_conflict(host_ports(pod), used_ports):
        text = "node(s) didn't have free ports for the requested pod ports"
        return AdmissionRejection("NodePorts", f"Predicate NodePorts failed: {text}")
    return None


def _untolerated_taint(pod: JSON, node: JSON) -> AdmissionRejection | None:
    tolerations = _tolerations(pod)
    taints = (api_types.convert(api_types.Taint, taint) for taint in _no_execute_taints(node))
    if all(is_tolerated(taint, tolerations) for taint in taints):
        return None
    text = "node(s) had taints that the pod didn't tolerate"
    return AdmissionRejection("TaintToleration", f"Predicate TaintToleration failed: {text}")


def _tolerations(pod: JSON) -> list[api_types.Toleration]:
    return [api_types.convert(api_types.Toleration, entry) for entry in pod["spec"].get("tolerations") or ()]
