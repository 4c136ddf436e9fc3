"""Cells of what owns pods, and of budgets and autoscalers for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Print,
    age_of,
    container_cells,
    human_duration,
    is_deleted,
    labels_text,
    name_of,
    selector_of,
    selector_text,
    since,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _deployment(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *container_cells(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _replicas(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *container_cells(spec.get("template"))]


def _replica_set(obj: JSON, now: datetime) -> Cells:
    return [*_replicas(obj, now), selector_of(spec_of(obj).get("selector"))]


def _replication_controller(obj: JSON, now: datetime) -> Cells:
    return [*_replicas(obj, now), labels_text(spec_of(obj).get("selector"))]


def _stateful_set(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    ready = f"{status_of(obj).get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *container_cells(spec.get("template"))]


def _daemon_set(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    template = spec.get("template") or {}
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(spec_of(template).get("nodeSelector")),
        age_of(obj, now),
        *container_cells(template),
        selector_of(spec.get("selector")),
    ]


def _job_status(job: JSON) -> str:
    for condition in ("Complete", "Failed"):
        if is_true(job, condition):
            return condition
    if is_deleted(job):
        return "Terminating"
    others = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((each for each in others if is_true(job, each)), "Running")


def _job(job: JSON, now: datetime) -> Cells:
    spec, status = spec_of(job), status_of(job)
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{succeeded}/1"
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif parallelism > 1:
        completions = f"{succeeded}/1 of {parallelism}"
    duration = ""
    if started := status.get("startTime"):
        ended = status.get("completionTime")
        until = datetime.fromisoformat(ended) if ended else now
        duration = human_duration(until - datetime.fromisoformat(started))
    return [
        name_of(job),
        _job_status(job),
        completions,
        duration,
        age_of(job, now),
        *container_cells(spec.get("template")),
        selector_of(spec.get("selector")),
    ]


def _cron_job(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    job = spec_of(spec.get("jobTemplate") or {})
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(bool(suspend)),
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        age_of(obj, now),
        *container_cells(job.get("template")),
        selector_of(job.get("selector")),
    ]


def _controller_revision(obj: JSON, now: datetime) -> Cells:
    owners = obj["metadata"].get("ownerReferences") or ()
    controller = NONE
    if owner := next((each for each in owners if each.get("controller")), None):
        group = owner["apiVersion"].rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        controller = f"{kind.lower()}/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


def _scale(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), spec_of(obj).get("replicas", 0), status_of(obj).get("replicas", 0), age_of(obj, now)]


def _disruption_budget(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    limits = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, status_of(obj).get("disruptionsAllowed", 0), age_of(obj, now)]


def _autoscaler_value(metric: JSON, which: str, field: str) -> Any:
    return (metric.get(which) or {}).get(field)


def _autoscaler_target(spec: JSON, status: JSON | None) -> str:
    source = spec.get("type", "")
    key = source[:1].lower() + source[1:]
    target = spec.get(key)
    if target is None:
        return "<unknown type>"
    current = (status or {}).get(key)

    def now_at(field: str) -> str:
        value = _autoscaler_value(current, "current", field) if current else None
        return UNKNOWN if value is None else f"{value}%" if field == "averageUtilization" else str(value)

    average = _autoscaler_value(target, "target", "averageValue")
    if source in ("Resource", "ContainerResource"):
        if average is not None:
            return f"{target.get('name', '')}: {now_at('averageValue')}/{average}"
        utilization = _autoscaler_value(target, "target", "averageUtilization")
        wanted = "<auto>" if utilization is None else f"{utilization}%"
        return f"{target.get('name', '')}: {now_at('averageUtilization')}/{wanted}"
    if source == "Pods":
        return f"{now_at('averageValue')}/{average}"
    if average is not None:
        return f"{now_at('averageValue')}/{average} (avg)"
    return f"{now_at('value')}/{_autoscaler_value(target, 'target', 'value')}"


def _autoscaler(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    reference = spec.get("scaleTargetRef") or {}
    current = status.get("currentMetrics") or ()
    targets = [
        _autoscaler_target(each, current[index] if index < len(current) else None)
        for index, each in enumerate(spec.get("metrics") or ())
    ]
    shown = ", ".join(targets[:2]) or NONE
    return [
        name_of(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        f"{shown} + {len(targets) - 2} more..." if len(targets) > 2 else shown,
        UNSET if spec.get("minReplicas") is None else str(spec["minReplicas"]),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(obj, now),
    ]


PRINTERS: dict[str, Print] = {
    "scale": _scale,
    "controllerrevisions.apps": _controller_revision,
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "jobs.batch": _job,
    "poddisruptionbudgets.policy": _disruption_budget,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replication_controller,
    "statefulsets.apps": _stateful_set,
}
