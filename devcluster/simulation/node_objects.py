"""Node and Lease objects as a kubelet of v1.36 registers them.

Pure functions on plain JSON; time and identity are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.simulation.node_addresses import DEFAULT_MAX_PODS, NodeAddresses
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.simulation.device_files import DevicePool

KUBELET_VERSION = "v1.36.2"
ANNOTATION_NODE = "kubeloop.dev/node"  # "simulated", or another value for a node with an external kubelet
ANNOTATION_FAIL = "kubeloop.dev/fail"  # one of FAILURE_MODES, while the annotation exists
KWOK_NODE = "kwok.x-k8s.io/node"  # "fake": KWOK's annotation of simulated nodes
LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_SECONDS = 40  # kubelet's nodeLeaseDurationSeconds
_ADMISSION_TAINT = {
    "key": "node.kubernetes.io/not-ready",
    "effect": "NoSchedule",
}  # of every Node that a client creates


PodMarkers = Callable[[JSON], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Number, properties and behaviour of the simulated nodes.

    count: nodes registered at the start; more may be created through the API.
    every_node: simulate all nodes except those marked as external; else only those marked as simulated.
    name_prefix, first_number: node i is named "<name_prefix><first_number + i>".
    capacity: quantity per resource, as in node.status.capacity.
    allocatable: the part of the capacity that pods may use; None: all.
    labels, taints: added to every node.
    zones: node i is in zones[i mod len(zones)]; region: of all nodes. Empty: no such label.
    start_delay_seconds, start_delay_spread_seconds: a bound pod starts after a random time in delay +- spread.
    probe_delays: wait for initialDelaySeconds and successThreshold of probes; else they succeed at once.
    stop_delay_seconds: time that containers take to stop, at most the pod's grace period; 0 in a namespace in deletion.
    events: record the kubelet's events (Pulled, Created, Started, Killing); benchmarks may disable them.
    lease_renew_seconds, status_report_seconds: periods of Lease renewals and condition reports per node.
    heartbeats_on_read: write heartbeats only when a client reads them; for virtual time, where all clients that watch
      Leases are controllers of this process.
    job_run_seconds: containers of a Job's pod exit with 0 after this time.
    devices: pools of the device file, which the nodes publish as ResourceSlices.
    jitter: every delay of a pod varies randomly by up to this fraction.
    missing_images: patterns of images that cannot be pulled.
    command_exits: containers whose command says how it ends (`exit 1`, `sleep 5`) end so.
    complete_bare_pods: the containers of a pod without a controller, which restartPolicy lets complete, exit with 0
      after job_run_seconds.
    pod_markers: returns values of kubeloop's annotations, by name without prefix, for a pod that does not have them.
    declared_features: status.declaredFeatures of every node.
    awaits_objects: pods wait for the ConfigMaps and Secrets that they refer to, and their containers need the keys.
    adopts_at_once: kubelets write the status of pods that run when they start anew; else it stays, and a pod of
      which nothing is due is adopted with its next change.
    """

    count: int = 5
    every_node: bool = True
    name_prefix: str = "node-"
    first_number: int = 0
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    )
    allocatable: Mapping[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    zones: tuple[str, ...] = ("zone-a", "zone-b", "zone-c")
    region: str = "local"
    architecture: str = "amd64"
    start_delay_seconds: float = 0.05
    start_delay_spread_seconds: float = 0.02
    probe_delays: bool = True
    stop_delay_seconds: float = 0.1
    events: bool = True
    lease_renew_seconds: float = 10.0
    status_report_seconds: float = 300.0
    heartbeats_on_read: bool = False
    pod_markers: PodMarkers | None = None
    job_run_seconds: float = 1.0
    declared_features: tuple[str, ...] = ()
    devices: tuple[DevicePool, ...] = ()
    jitter: float = 0.0
    missing_images: tuple[str, ...] = ()
    command_exits: bool = True
    complete_bare_pods: bool = False
    awaits_objects: bool = True
    adopts_at_once: bool = True

    def name(self, index: int) -> str:
        return f"{self.name_prefix}{self.first_number + index}"


def node_object(settings: NodeSettings, index: int, *, now: str, uid: str) -> JSON:
    """Return the Node that the kubelet of the index-th node creates, without the fields that completed_node() adds.

    now: a metav1.Time.
    """
    name = settings.name(index)
    labels = {
        "beta.kubernetes.io/arch": settings.architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": settings.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
    }
    if settings.region:
        labels["topology.kubernetes.io/region"] = settings.region
    if settings.zones:
        labels["topology.kubernetes.io/zone"] = settings.zones[index % len(settings.zones)]
    spec: JSON = {}
    if settings.taints:
        spec["taints"] = [dict(taint) for taint in settings.taints]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": uid,
            "creationTimestamp": now,
            "labels": {**labels, **settings.labels},
            "annotations": {ANNOTATION_NODE: "simulated", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": spec,
        "status": {},
    }


def declared_features(gates: FeatureGates) -> tuple[str, ...]:
    """Return the features that a kubelet with these gates declares. Source: component-helpers/nodedeclaredfeatures."""
    if not gates.enabled("NodeDeclaredFeatures"):
        return ()
    return tuple(name for name in _DECLARED_FEATURES if gates.enabled(name))


_DECLARED_FEATURES = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)


def completed_node(
    node: JSON, settings: NodeSettings, index: int, addresses: NodeAddresses, *, now: str, conditions: bool = True
) -> JSON | None:
    """Return `node` with the fields that its kubelet sets at its start; None if no field is missing.

    Fields that the creator of the node has set are unchanged: a Node created by a user may have any capacity.
    conditions: add the kubelet's conditions, and remove the taint not-ready of admission; False if stages set them.
    """
    name = node["metadata"]["name"]
    spec, status = node.get("spec") or {}, node.get("status") or {}
    added: JSON = {}
    if not status.get("capacity"):
        added["capacity"] = dict(status.get("allocatable") or settings.capacity)
    if not status.get("allocatable"):
        added["allocatable"] = dict(status.get("capacity") or settings.allocatable or settings.capacity)
    present = {condition.get("type") for condition in status.get("conditions") or ()}
    missing = [condition for condition in healthy_conditions(now) if condition["type"] not in present]
    if missing and conditions:
        added["conditions"] = [*(status.get("conditions") or ()), *missing]
    if conditions and is_true({"status": {**status, **added}}, "Ready") and _ADMISSION_TAINT in spec.get("taints", ()):
        # as of a node that has registered ready; no node lifecycle controller needs to run
        taints = [taint for taint in spec["taints"] if taint != _ADMISSION_TAINT]
        spec = {name: value for name, value in spec.items() if name != "taints"} | (
            {"taints": taints} if taints else {}
        )
    if not status.get("addresses"):
        added["addresses"] = [
            {"type": "InternalIP", "address": addresses.host_ip(index)},
            {"type": "Hostname", "address": name},
        ]
    # The API server defaults nodeInfo to empty strings and the daemon's port to 0.
    if not (status.get("nodeInfo") or {}).get("kubeletVersion"):
        added["nodeInfo"] = node_info(node, settings)
    if not ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port"):
        added["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    if "features" not in status:
        added["features"] = {"supplementalGroupsPolicy": True}
    if settings.declared_features and "declaredFeatures" not in status:
        added["declaredFeatures"] = list(settings.declared_features)
    metadata = node["metadata"]
    if is_simulated(node) is None:
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION_NODE: "simulated"}
        metadata = {**metadata, "annotations": annotations}
    if not added and spec.get("podCIDR") and spec is node["spec"] and metadata is node["metadata"]:
        return None
    if not spec.get("podCIDR"):
        pods = str(added.get("capacity", status.get("capacity") or {}).get("pods", ""))
        cidr = addresses.pod_cidr(index, int(pods) if pods.isdecimal() else DEFAULT_MAX_PODS)
        spec = {**spec, "podCIDR": cidr, "podCIDRs": [cidr]}
    return {**node, "metadata": metadata, "spec": spec, "status": {**status, **added}}


def with_extended_resources(node: JSON, before: Mapping[str, str]) -> JSON | None:
    """Return `node` with the extended resources of its capacity as allocatable; None if they are already.

    before: the capacity of which allocatable resources are known. Source: pkg/kubelet/nodestatus (MachineInfo).
    """
    status = node.get("status") or {}
    capacity: Mapping[str, str] = status.get("capacity") or {}
    old: Mapping[str, str] = status.get("allocatable") or {}
    allocatable = {name: quantity for name, quantity in old.items() if name in capacity or not _is_extended(name)}
    for name, quantity in capacity.items():
        if _is_extended(name) and (name not in allocatable or before.get(name) != quantity):
            allocatable[name] = quantity
    return None if allocatable == old else {**node, "status": {**status, "allocatable": allocatable}}


def _is_extended(resource: str) -> bool:
    return "/" in resource and "kubernetes.io/" not in resource


def node_info(node: JSON, settings: NodeSettings) -> JSON:
    """Return status.nodeInfo. Identifiers are derived from the node's uid, so that they are stable."""
    machine_id = str(node["metadata"].get("uid", "")).replace("-", "")
    return {
        "architecture": settings.architecture,
        "bootID": node["metadata"].get("uid", ""),
        "containerRuntimeVersion": "containerd://2.2.0",
        "kernelVersion": "6.12.0",
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": machine_id,
        "operatingSystem": "linux",
        "osImage": "kubeloop simulated node",
        "systemUUID": node["metadata"].get("uid", ""),
    }


def healthy_conditions(now: str) -> list[JSON]:
    """Return the four conditions that the kubelet of a healthy node reports."""
    return [
        _condition(*condition, now)
        for condition in (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        )
    ]


def _condition(type_: str, status: str, reason: str, message: str, now: str) -> JSON:
    return {
        "type": type_,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


FAILURE_MODES = ("unreachable", "not-ready", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
"""Values of the annotation ANNOTATION_FAIL of a node."""
NETWORK_NOT_READY = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)
_FAILURE_CONDITIONS = {  # mode -> (condition, status, reason, message)
    "not-ready": ("Ready", "False", "KubeletNotReady", NETWORK_NOT_READY),
    "memory-pressure": (
        "MemoryPressure",
        "True",
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    ),
    "disk-pressure": ("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure"),
    "pid-pressure": ("PIDPressure", "True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    "network-unavailable": ("NetworkUnavailable", "True", "NoRouteCreated", "RouteController failed to create a route"),
}
_FAILURE_REASONS = {reason for _, _, reason, _ in _FAILURE_CONDITIONS.values()} | {
    "NodeStatusUnknown",
    "NodeStatusNeverUpdated",
}


def failure_mode(node: JSON) -> str:
    """Return the failure mode of the node's annotation; "" without one, or if its value is invalid."""
    mode: str = (node["metadata"].get("annotations") or {}).get(ANNOTATION_FAIL, "")
    return mode if mode in FAILURE_MODES else ""


def is_simulated(node: JSON) -> bool | None:
    """Return whether the node's annotations or labels mark it as simulated or external; None if neither."""
    for markers in (node["metadata"].get("annotations") or {}, node["metadata"].get("labels") or {}):
        if ANNOTATION_NODE in markers:
            return bool(markers[ANNOTATION_NODE] == "simulated")
        if markers.get(KWOK_NODE) == "fake":
            return True
    return None


def with_reported_conditions(node: JSON, now: str) -> JSON:
    """Return `node` with a report of its kubelet: current heartbeats, and the condition of its failure mode only.

    Conditions set by clients are unchanged except for their heartbeats, so that tests may set any.
    """
    failed = _FAILURE_CONDITIONS.get(failure_mode(node))
    healthy = {condition["type"]: condition for condition in healthy_conditions(now)}
    conditions = []
    for condition in (node.get("status") or {}).get("conditions") or ():
        type_ = condition.get("type")
        if failed is not None and type_ == failed[0]:
            continue
        differs = condition.get("status") != healthy.get(type_, {}).get("status")
        if differs and condition.get("reason") in _FAILURE_REASONS:
            if type_ in healthy:
                conditions.append(healthy[type_])
            continue
        conditions.append({**condition, "lastHeartbeatTime": now} if type_ in healthy else condition)
    if failed is not None:
        type_, status, _, _ = failed
        previous = condition_of(node, type_) or {}
        transition = previous.get("lastTransitionTime") if previous.get("status") == status else None
        conditions.append({**_condition(*failed, now), "lastTransitionTime": transition or now})
    order = {type_: number for number, type_ in enumerate(healthy)}
    conditions.sort(key=lambda condition: order.get(condition.get("type", ""), -1))
    return {**node, "status": {**(node.get("status") or {}), "conditions": conditions}}


def lease_object(node: JSON, *, now: str, now_micro: str, uid: str) -> JSON:
    """Return the Lease that a kubelet renews as its heartbeat. now_micro: a metav1.MicroTime."""
    name = node["metadata"]["name"]
    return {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "uid": uid,
            "creationTimestamp": now,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"].get("uid", "")}
            ],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_SECONDS, "renewTime": now_micro},
    }
