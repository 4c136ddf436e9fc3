"""Cells of the kinds that fit nowhere else."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.printers.formatting import Cells, Print, age_of, name_of, since, spec_of, status_of
from kubeloop.kube.json_object import JSON


def _event(obj: JSON, now: datetime) -> Cells:
    """An event of either group: events.k8s.io names the same fields differently."""
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
        since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{involved['name']}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        since(first, now),
        count,
        name_of(obj),
    ]


def _namespace(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), status_of(obj).get("phase", ""), age_of(obj, now)]


def _config_map(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


def _secret(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def _service_account(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), age_of(obj, now)]


def _component_status(obj: JSON, _now: datetime) -> Cells:
    healthy = next((each for each in obj.get("conditions") or () if each.get("type") == "Healthy"), None)
    if healthy is None:
        return [name_of(obj), "Unknown", "", ""]
    shown = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), shown, healthy.get("message", ""), healthy.get("error", "")]


def _lease(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), spec_of(obj).get("holderIdentity") or "", age_of(obj, now)]


def _resource_quota(obj: JSON, now: datetime) -> Cells:
    hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = ", ".join(text for name, text in shown.items() if not name.startswith("limits."))
    limits = ", ".join(text for name, text in shown.items() if name.startswith("limits."))
    return [name_of(obj), requests, limits, age_of(obj, now)]


def _priority_class(obj: JSON, now: datetime) -> Cells:
    default = bool(obj.get("globalDefault"))
    return [name_of(obj), obj.get("value", 0), default, age_of(obj, now), obj.get("preemptionPolicy") or ""]


def _runtime_class(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), obj.get("handler", ""), age_of(obj, now)]


def _role_binding(obj: JSON, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(each["name"] for each in subjects if each.get("kind") == kind)

    accounts = [
        f"{each.get('namespace', '')}/{each['name']}" for each in subjects if each.get("kind") == "ServiceAccount"
    ]
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [name_of(obj), reference, age_of(obj, now), named("User"), named("Group"), ", ".join(accounts)]


def _any_object(obj: JSON, _now: datetime) -> Cells:
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


PRINTERS: dict[str, Print] = {
    "componentstatuses": _component_status,
    "": _any_object,
    "configmaps": _config_map,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
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
