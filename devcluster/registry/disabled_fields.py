"""Drop the fields of disabled feature gates, without an error or a warning, unless the stored object uses them.

Source: pkg/api/pod/util.go (DropDisabledPodFields) and the strategies under pkg/registry of Kubernetes v1.36. Objects
are changed in place; they are the request's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeloop.devcluster.registry import disabled_device_fields
from kubeloop.devcluster.registry.disabled_device_fields import drop_fields
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON

_TEMPLATE_PATHS: dict[str, tuple[str, ...]] = {
    "pods": (),
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}

Drop = Callable[[JSON, JSON], None]
"""Drops a field from the first argument unless the second, the stored one, uses it ({} if there is none)."""


class DisabledFields:
    """Fields that a server with these feature gates drops.

    merges_spread_keys: merge matchLabelKeys of topology spread constraints into their selectors. resizes_pods: a resize
    may change pod-level resources. shares_claims: PodGroups have resource claims.
    """

    def __init__(self, gates: FeatureGates) -> None:
        def disabled(gated: Iterable[tuple[str, Drop]]) -> tuple[Drop, ...]:
            return tuple(drop for gate, drop in gated if not gates.enabled(gate))

        def disabled_by_kind(table: dict[str, tuple[tuple[str, Drop], ...]]) -> dict[str, tuple[Drop, ...]]:
            return {name: drops for name, gated in table.items() if (drops := disabled(gated))}

        self._pod_spec = disabled(_POD_SPEC)
        self._objects = disabled_by_kind(_OBJECTS)
        self._statuses = disabled_by_kind(_STATUSES)
        self._defaults = {name: default for name, (gate, default) in _DEFAULTS.items() if gates.enabled(gate)}
        self.resizes_pods = gates.enabled("InPlacePodLevelResourcesVerticalScaling")
        self.shares_claims = gates.enabled("DRAWorkloadResourceClaims")
        self.merges_spread_keys = gates.enabled("MatchLabelKeysInPodTopologySpread") and gates.enabled(
            "MatchLabelKeysInPodTopologySpreadSelectorMerge"
        )

    def drop(self, group_resource: str, obj: JSON, old: JSON | None = None) -> None:
        """Drop disabled fields from an object, and default the fields of enabled gates, in place. old: if stored."""
        for drop in self._objects.get(group_resource, ()):
            drop(obj, old or {})
        if (default := self._defaults.get(group_resource)) is not None:
            default(obj)
        path = _TEMPLATE_PATHS.get(group_resource)
        if path is None:
            return
        for name in path:
            obj, old = obj.get(name) or {}, (old or {}).get(name)
        spec = obj.get("spec")
        if spec:
            old_spec = (old or {}).get("spec") or {}
            for drop in self._pod_spec:
                drop(spec, old_spec)

    def drop_status(self, group_resource: str, status: JSON, old: JSON) -> None:
        """Drop disabled fields from a status, in place. old: the stored status."""
        for drop in self._statuses.get(group_resource, ()):
            drop(status, old)

    def drops_status_fields(self, group_resource: str) -> bool:
        """Return True if drop_status() may change the status of this group resource."""
        return group_resource in self._statuses


def _itself(obj: JSON) -> tuple[JSON]:
    return (obj,)


def _containers(spec: JSON) -> Iterator[JSON]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


# --- pod specs --------------------------------------------------------------------------------------------------------


def _projected_sources(spec: JSON) -> Iterator[JSON]:
    for volume in spec.get("volumes") or ():
        yield from volume.get("projected", {}).get("sources") or ()


def _stop_signal_users(spec: JSON) -> list[JSON]:
    return [container for container in _containers(spec) if "stopSignal" in container.get("lifecycle", ())]


def _drop_stop_signals(new: JSON, old: JSON) -> None:
    users = _stop_signal_users(new)
    if users and not _stop_signal_users(old):
        for container in users:
            del container["lifecycle"]["stopSignal"]
            if not container["lifecycle"]:
                del container["lifecycle"]


def _has_restart_rules(spec: JSON) -> bool:
    return any("restartPolicy" in container for container in spec.get("containers") or ()) or any(
        container.get("restartPolicy", "Always") != "Always" or container.get("restartPolicyRules")
        for container in spec.get("initContainers") or ()
    )


def _drop_restart_rules(new: JSON, old: JSON) -> None:
    if _has_restart_rules(old):
        return
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in new.get(kind) or ():
            container.pop("restartPolicyRules", None)
            if kind != "initContainers" or container.get("restartPolicy", "Always") != "Always":
                container.pop("restartPolicy", None)


def _environment_sources(spec: JSON) -> Iterator[JSON]:
    for container in _containers(spec):
        for variable in container.get("env") or ():
            yield variable.get("valueFrom") or {}


def _spread_constraints(spec: JSON) -> Iterable[JSON]:
    return spec.get("topologySpreadConstraints") or ()


_POD_SPEC: tuple[tuple[str, Drop], ...] = (
    ("GenericWorkload", drop_fields((_itself, ("schedulingGroup",)))),
    ("ClusterTrustBundleProjection", drop_fields((_projected_sources, ("clusterTrustBundle",)))),
    ("PodCertificateRequest", drop_fields((_projected_sources, ("podCertificate",)))),
    ("ContainerStopSignals", _drop_stop_signals),
    ("ContainerRestartRules", _drop_restart_rules),
    ("HostnameOverride", drop_fields((_itself, ("hostnameOverride",)))),
    ("EnvFiles", drop_fields((_environment_sources, ("fileKeyRef",)))),
    ("PodLevelResources", drop_fields((_itself, ("resources",)))),
    ("MatchLabelKeysInPodTopologySpread", drop_fields((_spread_constraints, ("matchLabelKeys",)))),
)

# --- statuses ---------------------------------------------------------------------------------------------------------


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


def _conditions(status: JSON) -> Iterable[JSON]:
    return status.get("conditions") or ()


_TERMINATING_REPLICAS = (("DeploymentReplicaSetTerminatingReplicas", drop_fields((_itself, ("terminatingReplicas",)))),)
_STATUSES: dict[str, tuple[tuple[str, Drop], ...]] = {
    "pods": (
        ("DRAExtendedResource", drop_fields((_itself, ("extendedResourceClaimStatus",)))),
        ("DRANodeAllocatableResources", drop_fields((_itself, ("nodeAllocatableResourceClaimStatuses",)))),
        ("ImageVolumeWithDigest", drop_fields((_volume_mounts, ("volumeStatus",)))),
        ("ResourceHealthStatus", drop_fields((_container_statuses, ("allocatedResourcesStatus",)))),
        ("ResourceHealthStatusMessage", drop_fields((_resource_health, ("message",)))),
        ("InPlacePodLevelResourcesVerticalScaling", drop_fields((_itself, ("resources", "allocatedResources")))),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        (
            "CRDObservedGenerationTracking",
            drop_fields((_itself, ("observedGeneration",)), (_conditions, ("observedGeneration",))),
        ),
    ),
    "nodes": (("NodeDeclaredFeatures", drop_fields((_itself, ("declaredFeatures",)))),),
    "deployments.apps": _TERMINATING_REPLICAS,
    "replicasets.apps": _TERMINATING_REPLICAS,
    **disabled_device_fields.STATUSES,
}

# --- other kinds ------------------------------------------------------------------------------------------------------


def _spec(obj: JSON) -> tuple[JSON]:
    return (obj.get("spec") or {},)


def _status(obj: JSON) -> tuple[JSON]:
    return (obj.get("status") or {},)


def _rolling_update(stateful_set: JSON) -> Iterator[JSON]:
    strategy = stateful_set.get("spec", {}).get("updateStrategy") or {}
    if (rolling_update := strategy.get("rollingUpdate")) is not None:
        yield rolling_update


def _default_max_unavailable(stateful_set: JSON) -> None:
    for rolling_update in _rolling_update(stateful_set):
        rolling_update.setdefault("maxUnavailable", 1)


def _default_prevent_scheduling(driver: JSON) -> None:
    driver.setdefault("spec", {}).setdefault("preventPodSchedulingIfMissing", False)


def _scaling_rules(autoscaler: JSON) -> Iterator[JSON]:
    behavior = autoscaler.get("spec", {}).get("behavior") or {}
    for name in ("scaleDown", "scaleUp"):
        yield behavior.get(name) or {}


def _drop_cross_namespace_source(new: JSON, old: JSON) -> None:
    spec = new.get("spec", {})
    if (spec.get("dataSourceRef") or {}).get("namespace") and old.get("spec", {}).get("dataSourceRef") is None:
        del spec["dataSourceRef"]


_GATES_OF_GROUP_FIELDS = (
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"),
    ("resourceClaims", "DRAWorkloadResourceClaims"),
    ("disruptionMode", "WorkloadAwarePreemption"),
    ("priorityClassName", "WorkloadAwarePreemption"),
    ("priority", "WorkloadAwarePreemption"),
)
"""Fields of PodGroups and of their templates in Workloads; each is retained on its own."""


def _drop_from_templates(name: str) -> Drop:
    """Return a function that drops a field from the templates of a Workload; they are compared by index."""

    def drop(new: JSON, old: JSON) -> None:
        templates, stored = ((obj.get("spec") or {}).get("podGroupTemplates") or () for obj in (new, old))
        for i, template in enumerate(templates):
            if i >= len(stored) or stored[i].get(name) in _UNUSED:
                if name == "schedulingConstraints":
                    template[name] = None  # JSON has the field even if it is unset
                else:
                    template.pop(name, None)

    return drop


_UNUSED: tuple[Any, ...] = (None, [])


_OBJECTS: dict[str, tuple[tuple[str, Drop], ...]] = {
    "podgroups.scheduling.k8s.io": tuple(
        (gate, drop_fields((_spec, (name,)))) for name, gate in _GATES_OF_GROUP_FIELDS
    ),
    "workloads.scheduling.k8s.io": tuple((gate, _drop_from_templates(name)) for name, gate in _GATES_OF_GROUP_FIELDS),
    "statefulsets.apps": (("MaxUnavailableStatefulSet", drop_fields((_rolling_update, ("maxUnavailable",)))),),
    "csidrivers.storage.k8s.io": (("VolumeLimitScaling", drop_fields((_spec, ("preventPodSchedulingIfMissing",)))),),
    "horizontalpodautoscalers.autoscaling": (
        ("HPAConfigurableTolerance", drop_fields((_scaling_rules, ("tolerance",)))),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        (
            "CRDObservedGenerationTracking",
            drop_fields((_itself, ("observedGeneration",)), (_conditions, ("observedGeneration",))),
        ),
    ),
    "nodes": (("NodeDeclaredFeatures", drop_fields((_status, ("declaredFeatures",)))),),
    "persistentvolumeclaims": (("CrossNamespaceVolumeDataSource", _drop_cross_namespace_source),),
    **disabled_device_fields.OBJECTS,
}
_DEFAULTS: dict[str, tuple[str, Callable[[JSON], None]]] = {
    "statefulsets.apps": ("MaxUnavailableStatefulSet", _default_max_unavailable),
    "csidrivers.storage.k8s.io": ("VolumeLimitScaling", _default_prevent_scheduling),
}

DEFAULT_FIELDS = DisabledFields(DEFAULT_FEATURE_GATES)
