"""Cells of workloads, PodGroups, PodDisruptionBudgets and HorizontalPodAutoscalers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    CellPrinter,
    Cells,
    age_since,
    container_names_and_images,
    human_duration,
    is_terminating,
    labels_text,
    object_age,
    object_name,
    selector_or_none,
    selector_text,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _deployment(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    return [
        object_name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        object_age(obj, now),
        *container_names_and_images(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _replica_cells(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [object_name(obj), *counts, object_age(obj, now), *container_names_and_images(spec.get("template"))]


def _replica_set(obj: JSON, now: datetime) -> Cells:
    return [*_replica_cells(obj, now), selector_or_none(spec_of(obj).get("selector"))]


def _replication_controller(obj: JSON, now: datetime) -> Cells:
    return [*_replica_cells(obj, now), labels_text(spec_of(obj).get("selector"))]


def _stateful_set(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    ready = f"{status_of(obj).get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [object_name(obj), ready, object_age(obj, now), *container_names_and_images(spec.get("template"))]


def _daemon_set(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    template = spec.get("template") or {}
    return [
        object_name(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(spec_of(template).get("nodeSelector")),
        object_age(obj, now),
        *container_names_and_images(template),
        selector_or_none(spec.get("selector")),
    ]


def _job_status(job: JSON) -> str:
    for condition in ("Complete", "Failed"):
        if is_true(job, condition):
            return condition
    if is_terminating(job):
        return "Terminating"
    other_conditions = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((other for other in other_conditions if is_true(job, other)), "Running")


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
        end = datetime.fromisoformat(ended) if ended else now
        duration = human_duration(end - datetime.fromisoformat(started))
    return [
        object_name(job),
        _job_status(job),
        completions,
        duration,
        object_age(job, now),
        *container_names_and_images(spec.get("template")),
        selector_or_none(spec.get("selector")),
    ]


def _cron_job(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    job = spec_of(spec.get("jobTemplate") or {})
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        object_name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(bool(suspend)),
        len(status.get("active") or ()),
        age_since(last, now) if last else NONE,
        object_age(obj, now),
        *container_names_and_images(job.get("template")),
        selector_or_none(job.get("selector")),
    ]


def _controller_revision(obj: JSON, now: datetime) -> Cells:
    owners = obj["metadata"].get("ownerReferences") or ()
    controller = NONE
    if owner := next((reference for reference in owners if reference.get("controller")), None):
        group = owner["apiVersion"].rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        controller = f"{kind.lower()}/{owner['name']}"
    return [object_name(obj), controller, obj.get("revision", 0), object_age(obj, now)]


def _scale(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), spec_of(obj).get("replicas", 0), status_of(obj).get("replicas", 0), object_age(obj, now)]


def _pod_disruption_budget(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    limits = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [object_name(obj), *limits, status_of(obj).get("disruptionsAllowed", 0), object_age(obj, now)]


def _metric_value(metric: JSON, which: str, field: str) -> Any:
    return (metric.get(which) or {}).get(field)


def _metric_target_text(spec: JSON, status: JSON | None) -> str:
    source = spec.get("type", "")
    key = source[:1].lower() + source[1:]
    target = spec.get(key)
    if target is None:
        return "<unknown type>"
    current = (status or {}).get(key)

    def current_value(field: str) -> str:
        value = _metric_value(current, "current", field) if current else None
        return UNKNOWN if value is None else f"{value}%" if field == "averageUtilization" else str(value)

    average = _metric_value(target, "target", "averageValue")
    if source in ("Resource", "ContainerResource"):
        if average is not None:
            return f"{target.get('name', '')}: {current_value('averageValue')}/{average}"
        utilization = _metric_value(target, "target", "averageUtilization")
        target_utilization = "<auto>" if utilization is None else f"{utilization}%"
        return f"{target.get('name', '')}: {current_value('averageUtilization')}/{target_utilization}"
    if source == "Pods":
        return f"{current_value('averageValue')}/{average}"
    if average is not None:
        return f"{current_value('averageValue')}/{average} (avg)"
    return f"{current_value('value')}/{_metric_value(target, 'target', 'value')}"


def _horizontal_pod_autoscaler(obj: JSON, now: datetime) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    reference = spec.get("scaleTargetRef") or {}
    current = status.get("currentMetrics") or ()
    targets = [
        _metric_target_text(metric, current[index] if index < len(current) else None)
        for index, metric in enumerate(spec.get("metrics") or ())
    ]
    first_targets = ", ".join(targets[:2]) or NONE
    return [
        object_name(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        f"{first_targets} + {len(targets) - 2} more..." if len(targets) > 2 else first_targets,
        UNSET if spec.get("minReplicas") is None else str(spec["minReplicas"]),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        object_age(obj, now),
    ]


def _workload(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), object_age(obj, now)]


def _pod_group(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    policy = "Basic" if spec.get("schedulingPolicy", {}).get("gang") is None else "Gang"
    reference = spec.get("podGroupTemplateRef")
    workload = NONE if reference is None else reference["workload"]["workloadName"]
    return [object_name(obj), policy, workload, _pod_group_status(obj), object_age(obj, now)]


def _pod_group_status(pod_group: JSON) -> str:
    if (disruption := condition_of(pod_group, "DisruptionTarget")) is not None:
        reason: str = disruption["reason"]
        return reason
    if condition_of(pod_group, "PodGroupScheduled") is None:
        return "Pending"
    return "Scheduled" if is_true(pod_group, "PodGroupScheduled") else "Unschedulable"


PRINTERS: dict[str, CellPrinter] = {
    "scale": _scale,
    "controllerrevisions.apps": _controller_revision,
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "horizontalpodautoscalers.autoscaling": _horizontal_pod_autoscaler,
    "jobs.batch": _job,
    "poddisruptionbudgets.policy": _pod_disruption_budget,
    "podgroups.scheduling.k8s.io": _pod_group,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replication_controller,
    "statefulsets.apps": _stateful_set,
    "workloads.scheduling.k8s.io": _workload,
}
