"""Drop the fields of disabled feature gates, without an error or a warning, unless the stored object uses them.

Source: pkg/api/pod/util.go (DropDisabledPodFields) and the strategies under pkg/registry of Kubernetes v1.36. Objects
are changed in place; they are the request's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeloop.devcluster.registry import disabled_device_fields
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
    may change pod-level resources.
    """

    def __init__(self, gates: FeatureGates) -> None:
        def disabled(table: dict[str, tuple[tuple[str, Drop], ...]]) -> dict[str, tuple[Drop, ...]]:
            return {
                name: drops
                for name, gated in table.items()
                if (drops := tuple(drop for gate, drop in gated if not gates.enabled(gate)))
            }

        self._pod_spec = disabled({"": _POD_SPEC}).get("", ())
        self._objects = disabled(_OBJECTS)
        self._statuses = disabled(_STATUSES)
        self._defaults = {name: default for name, (gate, default) in _DEFAULTS.items() if gates.enabled(gate)}
        self.resizes_pods = gates.enabled("InPlacePodLevelResourcesVerticalScaling")
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

    def has_status(self, group_resource: str) -> bool:
        """Return True if the status of this group resource may have a disabled field."""
        return group_resource in self._statuses


def _top_level(name: str) -> Drop:
    def drop(new: JSON, old: JSON) -> None:
        if name in new and not old.get(name):
            del new[name]

    return drop


def _containers(spec: JSON) -> Iterator[JSON]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


# --- pod specs --------------------------------------------------------------------------------------------------------


def _projection(name: str) -> Drop:
    def users(spec: JSON) -> list[JSON]:
        return [
            source
            for volume in spec.get("volumes") or ()
            for source in volume.get("projected", {}).get("sources") or ()
            if name in source
        ]

    def drop(new: JSON, old: JSON) -> None:
        sources = users(new)
        if sources and not users(old):
            for source in sources:
                del source[name]

    return drop


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


def _file_key_users(spec: JSON) -> list[JSON]:
    return [
        variable["valueFrom"]
        for container in _containers(spec)
        for variable in container.get("env") or ()
        if "fileKeyRef" in (variable.get("valueFrom") or ())
    ]


def _drop_file_keys(new: JSON, old: JSON) -> None:
    users = _file_key_users(new)
    if users and not _file_key_users(old):
        for source in users:
            del source["fileKeyRef"]


def _spread_key_users(spec: JSON) -> list[JSON]:
    return [entry for entry in spec.get("topologySpreadConstraints") or () if entry.get("matchLabelKeys")]


def _drop_spread_keys(new: JSON, old: JSON) -> None:
    users = _spread_key_users(new)
    if users and not _spread_key_users(old):
        for constraint in users:
            del constraint["matchLabelKeys"]


_POD_SPEC: tuple[tuple[str, Drop], ...] = (
    ("GenericWorkload", _top_level("schedulingGroup")),
    ("ClusterTrustBundleProjection", _projection("clusterTrustBundle")),
    ("PodCertificateRequest", _projection("podCertificate")),
    ("ContainerStopSignals", _drop_stop_signals),
    ("ContainerRestartRules", _drop_restart_rules),
    ("HostnameOverride", _top_level("hostnameOverride")),
    ("EnvFiles", _drop_file_keys),
    ("PodLevelResources", _top_level("resources")),
    ("MatchLabelKeysInPodTopologySpread", _drop_spread_keys),
)

# --- statuses ---------------------------------------------------------------------------------------------------------


def _container_statuses(status: JSON) -> Iterator[JSON]:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(kind) or ()


def _volume_status_users(status: JSON) -> list[JSON]:
    return [
        mount
        for container in _container_statuses(status)
        for mount in container.get("volumeMounts") or ()
        if "volumeStatus" in mount
    ]


def _drop_volume_statuses(new: JSON, old: JSON) -> None:
    users = _volume_status_users(new)
    if users and not _volume_status_users(old):
        for mount in users:
            del mount["volumeStatus"]


def _drop_resource_health(new: JSON, old: JSON) -> None:
    name = "allocatedResourcesStatus"
    if not any(container.get(name) for container in _container_statuses(old)):
        for container in _container_statuses(new):
            container.pop(name, None)


def _health_messages(status: JSON) -> list[JSON]:
    return [
        resource
        for container in _container_statuses(status)
        for resource_status in container.get("allocatedResourcesStatus") or ()
        for resource in resource_status.get("resources") or ()
        if "message" in resource
    ]


def _drop_health_messages(new: JSON, old: JSON) -> None:
    users = _health_messages(new)
    if users and not _health_messages(old):
        for resource in users:
            del resource["message"]


def _drop_pod_level_resources(new: JSON, old: JSON) -> None:
    if not (old.get("resources") or old.get("allocatedResources")):
        new.pop("resources", None)
        new.pop("allocatedResources", None)


def _terminating_replicas(new: JSON, old: JSON) -> None:
    if "terminatingReplicas" not in old:
        new.pop("terminatingReplicas", None)


_STATUSES: dict[str, tuple[tuple[str, Drop], ...]] = {
    "pods": (
        ("DRAExtendedResource", _top_level("extendedResourceClaimStatus")),
        ("DRANodeAllocatableResources", _top_level("nodeAllocatableResourceClaimStatuses")),
        ("ImageVolumeWithDigest", _drop_volume_statuses),
        ("ResourceHealthStatus", _drop_resource_health),
        ("ResourceHealthStatusMessage", _drop_health_messages),
        ("InPlacePodLevelResourcesVerticalScaling", _drop_pod_level_resources),
    ),
    "nodes": (("NodeDeclaredFeatures", _top_level("declaredFeatures")),),
    "deployments.apps": (("DeploymentReplicaSetTerminatingReplicas", _terminating_replicas),),
    "replicasets.apps": (("DeploymentReplicaSetTerminatingReplicas", _terminating_replicas),),
    **disabled_device_fields.STATUSES,
}

# --- other kinds ------------------------------------------------------------------------------------------------------


def _drop_max_unavailable(new: JSON, old: JSON) -> None:
    if (_rolling_update(old) or {}).get("maxUnavailable") is None:
        (_rolling_update(new) or {}).pop("maxUnavailable", None)


def _default_max_unavailable(stateful_set: JSON) -> None:
    if (rolling_update := _rolling_update(stateful_set)) is not None:
        rolling_update.setdefault("maxUnavailable", 1)


def _rolling_update(stateful_set: JSON) -> JSON | None:
    strategy: JSON = stateful_set.get("spec", {}).get("updateStrategy") or {}
    rolling_update: JSON | None = strategy.get("rollingUpdate")
    return rolling_update


def _drop_prevent_scheduling(new: JSON, old: JSON) -> None:
    if "preventPodSchedulingIfMissing" not in old.get("spec", {}):
        new.get("spec", {}).pop("preventPodSchedulingIfMissing", None)


def _default_prevent_scheduling(driver: JSON) -> None:
    driver.setdefault("spec", {}).setdefault("preventPodSchedulingIfMissing", False)


def _tolerance_users(autoscaler: JSON) -> list[JSON]:
    behavior = autoscaler.get("spec", {}).get("behavior") or {}
    rules = (behavior.get(name) or {} for name in ("scaleDown", "scaleUp"))
    return [rule for rule in rules if "tolerance" in rule]


def _drop_tolerances(new: JSON, old: JSON) -> None:
    users = _tolerance_users(new)
    if users and not _tolerance_users(old):
        for rule in users:
            del rule["tolerance"]


def _drop_declared_features(new: JSON, old: JSON) -> None:
    if not old.get("status", {}).get("declaredFeatures"):
        new.get("status", {}).pop("declaredFeatures", None)


def _drop_cross_namespace_source(new: JSON, old: JSON) -> None:
    spec = new.get("spec", {})
    if (spec.get("dataSourceRef") or {}).get("namespace") and old.get("spec", {}).get("dataSourceRef") is None:
        del spec["dataSourceRef"]


_OBJECTS: dict[str, tuple[tuple[str, Drop], ...]] = {
    "statefulsets.apps": (("MaxUnavailableStatefulSet", _drop_max_unavailable),),
    "csidrivers.storage.k8s.io": (("VolumeLimitScaling", _drop_prevent_scheduling),),
    "horizontalpodautoscalers.autoscaling": (("HPAConfigurableTolerance", _drop_tolerances),),
    "nodes": (("NodeDeclaredFeatures", _drop_declared_features),),
    "persistentvolumeclaims": (("CrossNamespaceVolumeDataSource", _drop_cross_namespace_source),),
    **disabled_device_fields.OBJECTS,
}
_DEFAULTS: dict[str, tuple[str, Callable[[JSON], None]]] = {
    "statefulsets.apps": ("MaxUnavailableStatefulSet", _default_max_unavailable),
    "csidrivers.storage.k8s.io": ("VolumeLimitScaling", _default_prevent_scheduling),
}

DEFAULT_FIELDS = DisabledFields(DEFAULT_FEATURE_GATES)
