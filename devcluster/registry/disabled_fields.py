"""Drop the fields of disabled feature gates, without an error or a warning, unless the stored object uses them.

A kind's strategy has its gated fields; those of pod specs are here, for all kinds with a pod template. Source:
pkg/api/pod/util.go (DropDisabledPodFields) and the strategies under pkg/registry of Kubernetes v1.36. Objects are
changed in place; they are the request's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from kubeloop.devcluster.api.strategy import Drop, Strategy
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON


class _Drops(msgspec.Struct, frozen=True):
    """Fields that certain feature gates drop from the objects of one kind, and their default if there is one."""

    objects: tuple[Drop, ...]
    statuses: tuple[Drop, ...]
    default: Callable[[JSON], None] | None


class DisabledFields:
    """Fields that a server with these feature gates drops."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates
        self._pod_spec = self._disabled(_POD_SPEC)
        self._by_strategy: dict[Strategy, _Drops] = {}

    def _disabled(self, gated: Iterable[tuple[str, Drop]]) -> tuple[Drop, ...]:
        return tuple(drop for gate, drop in gated if not self._gates.enabled(gate))

    def _drops(self, strategy: Strategy) -> _Drops:
        if (drops := self._by_strategy.get(strategy)) is None:
            gate, default = strategy.gated_default or ("", None)
            enabled_default = default if gate and self._gates.enabled(gate) else None
            objects, statuses = self._disabled(strategy.gated_fields), self._disabled(strategy.gated_status_fields)
            drops = self._by_strategy[strategy] = _Drops(objects, statuses, enabled_default)
        return drops

    def drop(self, strategy: Strategy, obj: JSON, old: JSON | None = None) -> None:
        """Drop disabled fields from an object, and default the fields of enabled gates, in place. old: if stored."""
        drops = self._drops(strategy)
        for drop in drops.objects:
            drop(obj, old or {})
        if drops.default is not None:
            drops.default(obj)
        if strategy.template_path is None:
            return
        for name in strategy.template_path:
            obj, old = obj.get(name) or {}, (old or {}).get(name)
        spec = obj.get("spec")
        if spec:
            old_spec = (old or {}).get("spec") or {}
            for drop in self._pod_spec:
                drop(spec, old_spec)

    def drop_status(self, strategy: Strategy, obj: JSON, old: JSON) -> None:
        """Drop disabled fields from the status of an object, which is replaced. old: the stored object."""
        if drops := self._drops(strategy).statuses:
            status = obj["status"] = {**(obj.get("status") or {})}
            for drop in drops:
                drop(status, old.get("status") or {})


Parts = Callable[[JSON], Iterable[JSON]]
"""Returns the parts of an object that may have a field."""


def drop_fields(*fields: tuple[Parts, tuple[str, ...]]) -> Callable[[JSON, JSON], None]:
    """Return a function that drops fields from a new object unless the stored one has any of them."""

    def drop(new: JSON, old: JSON) -> None:
        users = [(part, name) for parts, names in fields for part in parts(new) for name in names if name in part]
        if users and not any(name in part for parts, names in fields for part in parts(old) for name in names):
            for part, name in users:
                del part[name]

    return drop


def itself(obj: JSON) -> tuple[JSON]:
    return (obj,)


def spec_part(obj: JSON) -> tuple[JSON]:
    return (obj.get("spec") or {},)


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


_POD_SPEC: tuple[tuple[str, Drop], ...] = (
    ("GenericWorkload", drop_fields((itself, ("schedulingGroup",)))),
    ("ClusterTrustBundleProjection", drop_fields((_projected_sources, ("clusterTrustBundle",)))),
    ("PodCertificateRequest", drop_fields((_projected_sources, ("podCertificate",)))),
    ("ContainerStopSignals", _drop_stop_signals),
    ("ContainerRestartRules", _drop_restart_rules),
    ("HostnameOverride", drop_fields((itself, ("hostnameOverride",)))),
    ("EnvFiles", drop_fields((_environment_sources, ("fileKeyRef",)))),
    ("PodLevelResources", drop_fields((itself, ("resources",)))),
    (
        "MatchLabelKeysInPodTopologySpread",
        drop_fields((lambda spec: spec.get("topologySpreadConstraints") or (), ("matchLabelKeys",))),
    ),
)

DEFAULT_FIELDS = DisabledFields(DEFAULT_FEATURE_GATES)
