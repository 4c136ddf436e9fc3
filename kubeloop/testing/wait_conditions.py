"""Conditions of `wait_for`, in the notation of `kubectl wait --for`, parsed into predicates of an object.

"Available", "condition=Ready", "Ready=False"   a condition of status.conditions; names in any case
"create", "delete"                              the object exists, or does not exist
"complete"                                      a workload is complete, as `kubectl rollout status` defines it; a Job
                                                has succeeded; a PodGroup has been scheduled
"ready"                                         all pods of a StatefulSet or DaemonSet are ready; else: condition Ready
"{.status.phase}=Running"                       a field; also "jsonpath={.status.phase}=Running"
a function                                      called with the object as plain JSON; LookupError counts as False

A condition that an object will never meet has a reason: a failed Job is never complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kubeloop.kube.objects.api_types import DaemonSet, Deployment, Job, Pod, convert
from kubeloop.kube.objects.object_fields import controller_of, job_finished_condition
from kubeloop.kube.user_error import UserError
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS, deployment_progress, pod_failure

ReadOnlyJSON = Mapping[str, Any]
Predicate = Callable[[ReadOnlyJSON | None], bool]
WaitCondition = str | Callable[[dict[str, Any]], object]

_FIELD = re.compile(r"(?:jsonpath=)?'?\{?(\.[^{}=']+)\}?'?(?:==?(.*))?", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z0-9_/-]+)|\[(\d+)\]")
_CONDITION = re.compile(r"(?:condition=)?([A-Za-z0-9./_-]+)(?:==?([A-Za-z]+))?")


class ParsedCondition(NamedTuple):
    """Predicate and name of a condition. why_never: returns why an object does not meet it now nor later, else ""."""

    holds: Predicate
    description: str
    why_never: Callable[[ReadOnlyJSON | None], str] = lambda obj: ""


def parse_condition(condition: WaitCondition) -> ParsedCondition:
    """Parse the notations of the module. Raises UserError for another one."""
    if callable(condition):
        return ParsedCondition(_predicate(condition), getattr(condition, "__name__", "the condition"))
    text = condition.strip()
    match text:
        case "create" | "created" | "exists":
            return ParsedCondition(lambda obj: obj is not None, "there")
        case "delete" | "deleted" | "gone":
            return ParsedCondition(lambda obj: obj is None, "gone")
        case "complete":
            return ParsedCondition(_complete, "complete", lambda obj: _why_never(obj, text))
        case "ready":
            return ParsedCondition(_ready, "ready", lambda obj: _why_never(obj, text))
    if (field := _FIELD.fullmatch(text)) is not None:
        steps = _steps(field[1], text)
        expected = field[2].strip("'\"") if field[2] is not None else None
        return ParsedCondition(lambda obj: _field_is(obj, steps, expected), text, lambda obj: _why_never(obj, field[1]))
    if (condition_match := _CONDITION.fullmatch(text)) is not None and not text.startswith("condition=="):
        name, status = condition_match[1], (condition_match[2] or "True").lower()
        awaited = name.lower() if status == "true" else ""
        return ParsedCondition(
            lambda obj: _has_condition(obj, name, status), text, lambda obj: _why_never(obj, awaited)
        )
    raise UserError(
        f"cannot wait for {condition!r}",
        hint='use "Available", "Ready=False", "create", "delete", "complete", "{.status.phase}=Running", or a function',
    )


def _predicate(function: Callable[[dict[str, Any]], object]) -> Predicate:
    def holds(obj: ReadOnlyJSON | None) -> bool:
        try:
            return obj is not None and bool(function(dict(obj)))
        except LookupError:
            return False  # a field that is not set yet

    return holds


def _complete(obj: ReadOnlyJSON | None) -> bool:
    if obj is None:
        return False
    kind = obj.get("kind")
    for resource, progress_of in WORKLOAD_PROGRESS.items():
        if kind == resource.kind:
            return progress_of(convert(resource.type, obj)).complete
    if kind == "ReplicaSet":
        return _all_replicas(obj, "availableReplicas")
    if kind == "Pod":
        return obj.get("status", {}).get("phase") == "Succeeded" or _has_condition(obj, "Ready", "true")
    raise UserError(f'"complete" is not defined for a {kind}', hint="wait for a condition, a field, or with a function")


def _ready(obj: ReadOnlyJSON | None) -> bool:
    if obj is not None and obj.get("kind") == "StatefulSet":
        return _all_replicas(obj, "readyReplicas")
    if obj is not None and obj.get("kind") == "DaemonSet":
        daemon_set = convert(DaemonSet, obj)
        status = daemon_set.status
        observed = status.observed_generation >= daemon_set.metadata.generation
        return observed and status.number_ready >= status.desired_number_scheduled
    return _has_condition(obj, "Ready", "true")


def _all_replicas(obj: ReadOnlyJSON, count: str) -> bool:
    """Return True if the status is of the present generation, and all replicas are counted in its field `count`."""
    expected = obj["spec"].get("replicas", 1)
    status = obj.get("status", {})
    observed = (status.get("observedGeneration") or 0) >= (obj["metadata"].get("generation") or 0)
    return bool(observed and (status.get("replicas") or 0) == expected == (status.get(count) or 0))


def _has_condition(obj: ReadOnlyJSON | None, name: str, status: str) -> bool:
    """Conditions of an older generation do not count. Source: kubectl v1.36, pkg/cmd/wait."""
    if obj is None:
        return False
    generation = obj["metadata"].get("generation") or 0
    for condition in obj.get("status", {}).get("conditions") or ():
        if str(condition.get("type", "")).lower() == name.lower():
            observed = condition.get("observedGeneration") or obj["status"].get("observedGeneration")
            if observed is not None and observed < generation:
                return False
            return str(condition.get("status", "")).lower() == status
    return False


def _why_never(obj: ReadOnlyJSON | None, awaited: str) -> str:
    """Return why an object that does not have the condition (lower case) or field `awaited` never will, else "".

    An object in deletion, and a pod whose controller may create another one of the same name, can be replaced.
    """
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return ""
    match obj.get("kind"), awaited:
        case "Job", "complete" | "failed":
            finished = job_finished_condition(convert(Job, obj))
            return f"it is {finished.type}: {finished.reason}: {finished.message}" if finished is not None else ""
        case "Pod", "complete" | "ready" | "containersready" | ".status.phase":
            pod = convert(Pod, obj)
            if controller_of(pod.metadata) is not None or pod.status.phase not in ("Succeeded", "Failed"):
                return ""
            return f"it has failed: {pod_failure(pod)}" if pod.status.phase == "Failed" else "it has succeeded"
        case "Deployment", "complete":
            return deployment_progress(convert(Deployment, obj)).failure
    return ""


def _steps(path: str, text: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise UserError(f"cannot wait for {text!r}", hint="a path is like {.status.conditions[0].reason}")
        steps.append(step[1] if step[1] is not None else int(step[2]))
        at = step.end()
    return steps


def _field_is(obj: ReadOnlyJSON | None, steps: list[str | int], expected: str | None) -> bool:
    value: Any = obj
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    if expected is None:
        return value is not None
    if isinstance(value, bool):
        return str(value).lower() == expected.lower()
    return str(value) == expected
