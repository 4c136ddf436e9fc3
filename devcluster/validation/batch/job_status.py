"""What a write of a Job's status may say. Source: batch/validation/validation.go, registry/batch/job/strategy.go.

What was wrong before may stay, as in v1.36: most rules look only at what has changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.validation.batch.job import index_count, index_interval
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

_PATH = "status"
_POSITIVE = ("active", "succeeded", "failed", "ready", "terminating")


def validate_job_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, status, before = obj["spec"], obj.get("status") or {}, old.get("status") or {}
    if status == before:
        return
    _validate_status_fields(errors, spec, status, before)
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _holds(before, kind) and not _holds(status, kind):
            _validate_conditions(errors, f"cannot disable the terminal {kind}=True condition")
    indexed = spec.get("completionMode") == "Indexed"
    for name in ("failed", "succeeded"):
        may_fall = name == "succeeded" and indexed and spec.get("completions") == spec.get("parallelism")
        if not may_fall and status.get(name, 0) < before.get(name, 0):
            errors.invalid(f"{_PATH}.{name}", status.get(name, 0), f"cannot decrease the {name} counter")
    ended, was_ended = status.get("completionTime"), before.get("completionTime")
    if ended and was_ended and ended != was_ended:
        errors.invalid(f"{_PATH}.completionTime", ended, "field is immutable")
    started, was_started = status.get("startTime"), before.get("startTime")
    resuming = _holds(before, "Suspended") and _holds(status, "Suspended", "False")
    if was_started and started != was_started and not resuming and not spec.get("suspend"):
        errors.invalid(f"{_PATH}.startTime", started, "field is immutable for unsuspended job once set")
    if _holds(before, _MET) and not _holds(status, _MET):
        _validate_conditions(errors, "cannot disable the SuccessCriteriaMet=True condition")
    if _holds(before, "Complete") and not _holds(before, _MET) and _holds(status, _MET):
        _validate_conditions(errors, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")


_MET = "SuccessCriteriaMet"


def _holds(status: JSON, kind: str, value: str = "True") -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == value
        for condition in status.get("conditions") or ()
    )


def _is_finished(status: JSON) -> bool:
    return _holds(status, "Complete") or _holds(status, "Failed")


def _validate_conditions(errors: ErrorList, why: str) -> None:
    errors.invalid_without_value(f"{_PATH}.conditions", why)


def _validate_status_fields(errors: ErrorList, spec: JSON, status: JSON, before: JSON) -> None:
    for name in _POSITIVE:
        errors.not_negative(f"{_PATH}.{name}", status.get(name))
    _validate_uncounted_pods(errors, status.get("uncountedTerminatedPods"))

    def changed(*names: str) -> bool:
        return any(status.get(name) != before.get(name) for name in names)

    def turned(*kinds: str) -> bool:
        return any(_holds(status, kind) != _holds(before, kind) for kind in kinds)

    complete, failed, met, target = (_holds(status, kind) for kind in ("Complete", "Failed", _MET, "FailureTarget"))
    finished, ended = complete or failed, _is_finished(status) != _is_finished(before)
    if complete and failed and turned("Complete", "Failed"):
        _validate_conditions(errors, "cannot set Complete=True and Failed=true conditions")
    if complete and target and turned("Complete", "FailureTarget"):
        _validate_conditions(errors, "cannot set Complete=True and FailureTarget=true conditions")
    _validate_completion_time(
        errors, status, complete=complete, looked_at=turned("Complete") or changed("completionTime")
    )
    started, completed = status.get("startTime"), status.get("completionTime")
    if changed("startTime", "completionTime") and started and completed and completed < started:
        errors.invalid(f"{_PATH}.completionTime", completed, "must be equal to or after `startTime`")
    if failed and not target and (turned("Failed") or changed("failedIndexes")):
        _validate_conditions(errors, "cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and turned("Complete", _MET):
        _validate_conditions(errors, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if finished and status.get("active", 0) > 0 and (ended or changed("active")):
        errors.invalid(f"{_PATH}.active", status["active"], "active>0 is invalid for finished job")
    nothing_to_do = spec.get("suspend") is True and spec.get("completions") == 0
    if finished and not started and (ended or changed("startTime")) and not nothing_to_do:
        errors.required(f"{_PATH}.startTime", "startTime is required for finished job")
    pods = status.get("uncountedTerminatedPods") or {}
    if finished and (pods.get("failed") or pods.get("succeeded")) and (ended or changed("uncountedTerminatedPods")):
        where, why = f"{_PATH}.uncountedTerminatedPods", "must be empty for finished job"
        errors.invalid(where, pods, why, "batch/v1.UncountedTerminatedPods")
    _validate_indexes(errors, spec, status, before)
    if finished and status.get("terminating", 0) > 0 and (ended or changed("terminating")):
        errors.invalid(f"{_PATH}.terminating", status["terminating"], "terminating>0 is invalid for finished job")
    ready = status.get("ready")
    if ready is not None and ready > status.get("active", 0) and changed("ready", "active"):
        errors.invalid(f"{_PATH}.ready", ready, "cannot set more ready pods than active")
    if met and failed:
        _validate_conditions(errors, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and target:
        _validate_conditions(errors, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if spec.get("successPolicy") is not None and complete and not met:
        _validate_conditions(
            errors, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )


def _validate_uncounted_pods(errors: ErrorList, pods: JSON | None) -> None:
    seen = set()
    for name in ("succeeded", "failed"):
        for i, uid in enumerate((pods or {}).get(name) or ()):
            where = f"{_PATH}.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                errors.invalid(where, uid, "must not be empty")
            elif uid in seen:
                errors.duplicate(where, uid)
            seen.add(uid)


def _validate_completion_time(errors: ErrorList, status: JSON, *, complete: bool, looked_at: bool) -> None:
    time, where = status.get("completionTime"), f"{_PATH}.completionTime"
    if looked_at and time is not None and not complete:
        errors.invalid(where, time, "cannot set completionTime when there is no Complete=True condition")
    if looked_at and time is None and complete:
        errors.required(where, "completionTime is required for Complete jobs")


def _validate_indexes(errors: ErrorList, spec: JSON, status: JSON, before: JSON) -> None:
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    done, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    done_changed = done != before.get("completedIndexes", "")
    failed_changed = failed != before.get("failedIndexes")
    if done_changed and completions is not None:
        _validate_index_format(errors, "completedIndexes", done, completions)
    if failed_changed and completions is not None and per_index is not None and failed is not None:
        _validate_index_format(errors, "failedIndexes", failed, completions)
    if done_changed and done and spec.get("completionMode") != "Indexed":
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.invalid(f"{_PATH}.completedIndexes", done, why)
    if failed_changed and per_index is None and failed is not None:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.invalid(f"{_PATH}.failedIndexes", failed, why)
    if (failed_changed or done_changed) and completions is not None and failed is not None:
        overlap = _overlap(done, failed, completions)
        if overlap is not None:
            why = f"failedIndexes and completedIndexes overlap at index: {overlap}"
            errors.invalid(f"{_PATH}.failedIndexes", failed, why)


def _validate_index_format(errors: ErrorList, name: str, text: str, completions: int) -> None:
    try:
        index_count(text, completions)
    except ValueError as error:
        errors.invalid(f"{_PATH}.{name}", text, f"error parsing {name}: {error}")


def _overlap(done: str, failed: str, completions: int) -> int | None:
    """The first index that is in both; intervals that are none are told of elsewhere."""

    def intervals(text: str) -> Iterator[tuple[int, int]]:
        for part in text.split(",") if text else ():
            try:
                yield index_interval(part, completions)
            except ValueError:
                continue

    ours, theirs = list(intervals(done)), list(intervals(failed))
    i = j = 0
    while i < len(ours) and j < len(theirs):
        (first, last), (other_first, other_last) = ours[i], theirs[j]
        if first <= other_last and other_first <= last:
            return max(first, other_first)
        if first <= other_first:
            i += 1
        else:
            j += 1
    return None
