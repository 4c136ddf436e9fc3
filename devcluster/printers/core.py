"""Cells of core kinds, except pods, volumes and networking; of Leases, RuntimeClasses, PriorityClasses and bindings."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.printers.formatting import (
    CellPrinter,
    Cells,
    age_since,
    object_age,
    object_name,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _event(obj: JSON, now: datetime) -> Cells:
    """Return the cells of an event of either API group; events.k8s.io has other field names."""
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance")
    kind = involved.get("kind", "").lower()
    return [
        age_since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{involved['name']}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        age_since(first, now),
        count,
        object_name(obj),
    ]


def _namespace(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), status_of(obj).get("phase", ""), object_age(obj, now)]


def _config_map(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), object_age(obj, now)]


def _secret(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), obj.get("type", ""), len(obj.get("data") or ()), object_age(obj, now)]


def _service_account(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), object_age(obj, now)]


def _component_status(obj: JSON, _now: datetime) -> Cells:
    healthy = next((condition for condition in obj.get("conditions") or () if condition.get("type") == "Healthy"), None)
    if healthy is None:
        return [object_name(obj), "Unknown", "", ""]
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [object_name(obj), state, healthy.get("message", ""), healthy.get("error", "")]


def _lease(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), spec_of(obj).get("holderIdentity") or "", object_age(obj, now)]


def _resource_quota(obj: JSON, now: datetime) -> Cells:
    hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    usage = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = ", ".join(text for name, text in usage.items() if not name.startswith("limits."))
    limits = ", ".join(text for name, text in usage.items() if name.startswith("limits."))
    return [object_name(obj), requests, limits, object_age(obj, now)]


def _priority_class(obj: JSON, now: datetime) -> Cells:
    default = bool(obj.get("globalDefault"))
    return [object_name(obj), obj.get("value", 0), default, object_age(obj, now), obj.get("preemptionPolicy") or ""]


def _device_taint_rule(obj: JSON, now: datetime) -> Cells:
    taint = spec_of(obj).get("taint") or {}
    names = [taint.get(name) or "" for name in ("key", "value", "effect")]
    time_added = age_since(taint["timeAdded"], now) if taint.get("timeAdded") else ""
    return [object_name(obj), *names, time_added, object_age(obj, now)]


def _runtime_class(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), obj.get("handler", ""), object_age(obj, now)]


def _role_binding(obj: JSON, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(subject["name"] for subject in subjects if subject.get("kind") == kind)

    accounts = [
        f"{subject.get('namespace', '')}/{subject['name']}"
        for subject in subjects
        if subject.get("kind") == "ServiceAccount"
    ]
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [object_name(obj), reference, object_age(obj, now), named("User"), named("Group"), ", ".join(accounts)]


def _any_object(obj: JSON, _now: datetime) -> Cells:
    return [object_name(obj), obj["metadata"].get("creationTimestamp", "")]


PRINTERS: dict[str, CellPrinter] = {
    "componentstatuses": _component_status,
    "": _any_object,
    "configmaps": _config_map,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "devicetaintrules.resource.k8s.io": _device_taint_rule,
    "events": _event,
    "leases.coordination.k8s.io": _lease,
    "namespaces": _namespace,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "resourcequotas": _resource_quota,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "runtimeclasses.node.k8s.io": _runtime_class,
    "secrets": _secret,
    "serviceaccounts": _service_account,
}
