"""Writes to a Job's status. Sources: batch/validation/validation.go, registry/batch/job/strategy.go.

Most rules apply to changed fields only, as in v1.36: invalid stored values may stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.integers import parse_integer

_STATUS = "status"


def validate_job_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, status, before = obj["spec"], obj.get("status") or {}, old.get("status") or {}
    if status == before:
        return
    _validate_status_fields(errors, spec, status, before)
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _has_condition(before, kind) and not _has_condition(status, kind):
            _report_condition_error(errors, f"cannot disable the terminal {kind}=True condition")
    indexed = spec.get("completionMode") == "Indexed"
    for name in ("failed", "succeeded"):
        may_decrease = name == "succeeded" and indexed and spec.get("completions") == spec.get("parallelism")
        if not may_decrease and status.get(name, 0) < before.get(name, 0):
            errors.invalid(f"{_STATUS}.{name}", status.get(name, 0), f"cannot decrease the {name} counter")
    completed, was_completed = status.get("completionTime"), before.get("completionTime")
    if completed and was_completed and completed != was_completed:
        errors.invalid(f"{_STATUS}.completionTime", completed, "field is immutable")
    started, was_started = status.get("startTime"), before.get("startTime")
    resumed = _has_condition(before, "Suspended") and _has_condition(status, "Suspended", "False")
    if was_started and started != was_started and not resumed and not spec.get("suspend"):
        errors.invalid(f"{_STATUS}.startTime", started, "field is immutable for unsuspended job once set")
    if _has_condition(before, _SUCCESS_CRITERIA_MET) and not _has_condition(status, _SUCCESS_CRITERIA_MET):
        _report_condition_error(errors, "cannot disable the SuccessCriteriaMet=True condition")
    if (
        _has_condition(before, "Complete")
        and not _has_condition(before, _SUCCESS_CRITERIA_MET)
        and _has_condition(status, _SUCCESS_CRITERIA_MET)
    ):
        _report_condition_error(
            errors, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        )


_SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"


def _has_condition(status: JSON, kind: str, value: str = "True") -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == value
        for condition in status.get("conditions") or ()
    )


def _is_finished(status: JSON) -> bool:
    return _has_condition(status, "Complete") or _has_condition(status, "Failed")


def _report_condition_error(errors: ErrorList, detail: str) -> None:
    errors.invalid_without_value(f"{_STATUS}.conditions", detail)


def _validate_status_fields(errors: ErrorList, spec: JSON, status: JSON, before: JSON) -> None:
    errors.not_negative_fields(_STATUS, status, "active", "succeeded", "failed", "ready", "terminating")
    _validate_uncounted_pods(errors, status.get("uncountedTerminatedPods"))

    def changed(*names: str) -> bool:
        return any(status.get(name) != before.get(name) for name in names)

    def condition_changed(*kinds: str) -> bool:
        return any(_has_condition(status, kind) != _has_condition(before, kind) for kind in kinds)

    kinds = ("Complete", "Failed", _SUCCESS_CRITERIA_MET, "FailureTarget")
    complete, failed, met, target = (_has_condition(status, kind) for kind in kinds)
    finished, finished_changed = complete or failed, _is_finished(status) != _is_finished(before)
    if complete and failed and condition_changed("Complete", "Failed"):
        _report_condition_error(errors, "cannot set Complete=True and Failed=true conditions")
    if complete and target and condition_changed("Complete", "FailureTarget"):
        _report_condition_error(errors, "cannot set Complete=True and FailureTarget=true conditions")
    _validate_completion_time(
        errors, status, complete=complete, changed=condition_changed("Complete") or changed("completionTime")
    )
    started, completed = status.get("startTime"), status.get("completionTime")
    if changed("startTime", "completionTime") and started and completed and completed < started:
        errors.invalid(f"{_STATUS}.completionTime", completed, "must be equal to or after `startTime`")
    if failed and not target and (condition_changed("Failed") or changed("failedIndexes")):
        _report_condition_error(errors, "cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and condition_changed("Complete", _SUCCESS_CRITERIA_MET):
        _report_condition_error(
            errors, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        )
    if finished and status.get("active", 0) > 0 and (finished_changed or changed("active")):
        errors.invalid(f"{_STATUS}.active", status["active"], "active>0 is invalid for finished job")
    has_no_work = spec.get("suspend") is True and spec.get("completions") == 0
    if finished and not started and (finished_changed or changed("startTime")) and not has_no_work:
        errors.required(f"{_STATUS}.startTime", "startTime is required for finished job")
    pods = status.get("uncountedTerminatedPods") or {}
    if (
        finished
        and (pods.get("failed") or pods.get("succeeded"))
        and (finished_changed or changed("uncountedTerminatedPods"))
    ):
        where, detail = f"{_STATUS}.uncountedTerminatedPods", "must be empty for finished job"
        errors.invalid(where, pods, detail, "batch/v1.UncountedTerminatedPods")
    _validate_indexes(errors, spec, status, before)
    if finished and status.get("terminating", 0) > 0 and (finished_changed or changed("terminating")):
        errors.invalid(f"{_STATUS}.terminating", status["terminating"], "terminating>0 is invalid for finished job")
    ready = status.get("ready")
    if ready is not None and ready > status.get("active", 0) and changed("ready", "active"):
        errors.invalid(f"{_STATUS}.ready", ready, "cannot set more ready pods than active")
    if met and failed:
        _report_condition_error(errors, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and target:
        _report_condition_error(errors, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if spec.get("successPolicy") is not None and complete and not met:
        _report_condition_error(
            errors, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )


def _validate_uncounted_pods(errors: ErrorList, pods: JSON | None) -> None:
    seen = set()
    for name in ("succeeded", "failed"):
        for i, uid in enumerate((pods or {}).get(name) or ()):
            where = f"{_STATUS}.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                errors.invalid(where, uid, "must not be empty")
            elif uid in seen:
                errors.duplicate(where, uid)
            seen.add(uid)


def _validate_completion_time(errors: ErrorList, status: JSON, *, complete: bool, changed: bool) -> None:
    time, where = status.get("completionTime"), f"{_STATUS}.completionTime"
    if changed and time is not None and not complete:
        errors.invalid(where, time, "cannot set completionTime when there is no Complete=True condition")
    if changed and time is None and complete:
        errors.required(where, "completionTime is required for Complete jobs")


def _validate_indexes(errors: ErrorList, spec: JSON, status: JSON, before: JSON) -> None:
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    completed, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    completed_changed = completed != before.get("completedIndexes", "")
    failed_changed = failed != before.get("failedIndexes")
    if completed_changed and completions is not None:
        _validate_index_format(errors, "completedIndexes", completed, completions)
    if failed_changed and completions is not None and per_index is not None and failed is not None:
        _validate_index_format(errors, "failedIndexes", failed, completions)
    if completed_changed and completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.invalid(f"{_STATUS}.completedIndexes", completed, detail)
    if failed_changed and per_index is None and failed is not None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.invalid(f"{_STATUS}.failedIndexes", failed, detail)
    if (failed_changed or completed_changed) and completions is not None and failed is not None:
        overlap = _first_overlap(completed, failed, completions)
        if overlap is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {overlap}"
            errors.invalid(f"{_STATUS}.failedIndexes", failed, detail)


def _validate_index_format(errors: ErrorList, name: str, text: str, completions: int) -> None:
    try:
        index_count(text, completions)
    except ValueError as error:
        errors.invalid(f"{_STATUS}.{name}", text, f"error parsing {name}: {error}")


def _first_overlap(completed: str, failed: str, completions: int) -> int | None:
    """Return the first index in both lists of intervals; invalid intervals are reported elsewhere and skipped here."""

    def intervals(text: str) -> Iterator[tuple[int, int]]:
        for part in text.split(",") if text else ():
            try:
                yield index_interval(part, completions)
            except ValueError:
                continue

    completed_intervals, failed_intervals = list(intervals(completed)), list(intervals(failed))
    i = j = 0
    while i < len(completed_intervals) and j < len(failed_intervals):
        (first, last), (other_first, other_last) = completed_intervals[i], failed_intervals[j]
        if first <= other_last and other_first <= last:
            return max(first, other_first)
        if first <= other_first:
            i += 1
        else:
            j += 1
    return None


def index_interval(text: str, completions: int) -> tuple[int, int]:
    """Return the first and last index of "2-4" or "3". Raises ValueError with Kubernetes' message."""

    def index(part: str) -> int:
        if not re.fullmatch("[-+]?[0-9]+", part):
            raise ValueError(f"cannot convert string to integer for index: {quoted(part)}")
        if parse_integer(part) >= completions:
            raise ValueError(f"too large index: {quoted(part)}")
        return parse_integer(part)

    parts = text.split("-")
    if len(parts) > 2:
        detail = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise ValueError(f"the fragment {quoted(text)} {detail}")
    first = index(parts[0])
    last = index(parts[1]) if len(parts) > 1 else first
    if len(parts) > 1 and first >= last:
        raise ValueError(f"non-increasing order, previous: {first}, current: {last}")
    return first, last


def index_count(text: str, completions: int) -> int:
    """Return the number of indexes in "0,2-4". Raises ValueError with Kubernetes' message."""
    total, before = 0, -1
    for interval in text.split(",") if text else ():
        first, last = index_interval(interval, completions)
        if before >= first:
            raise ValueError(f"non-increasing order, previous: {before}, current: {first}")
        total, before = total + last - first + 1, last
    return total
