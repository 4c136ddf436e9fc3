"""Conditions of a terminating namespace, which report the progress of its deletion.

Pure functions; the time is an argument. Source: pkg/controller/namespace/deletion/status_condition_utils.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from kubeloop.kube.objects.api_types import Condition


class DeletionReport(msgspec.Struct):
    """Result of one round of deleting a namespace's content.

    remaining: number of remaining objects per "<plural>.<group>" ("pods." for the core group). finalizers: number of
    objects per finalizer. discovery_error and content_errors: error messages.
    """

    discovery_error: str = ""
    content_errors: list[str] = msgspec.field(default_factory=list)
    remaining: dict[str, int] = msgspec.field(default_factory=dict)
    finalizers: dict[str, int] = msgspec.field(default_factory=dict)


_OK_CONDITIONS = {  # condition: (reason, message) when it is false
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentRemoved", "All content successfully removed"),
}


def _true_conditions(report: DeletionReport) -> dict[str, tuple[str, str]]:
    """Return (reason, message) of the conditions that are true."""
    true_conditions: dict[str, tuple[str, str]] = {}
    if report.discovery_error:
        true_conditions["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", report.discovery_error)
    if report.content_errors:
        errors = ", ".join(sorted(report.content_errors))
        message = f"Failed to delete all resource types, {len(report.content_errors)} remaining: {errors}"
        true_conditions["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if report.remaining:
        message = _join_sorted(report.remaining, "{} has {} resource instances")
        true_conditions["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {message}",
        )
    if report.finalizers:
        message = _join_sorted(report.finalizers, "{} in {} resource instances")
        message = f"Some content in the namespace has finalizers remaining: {message}"
        true_conditions["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return true_conditions


def _join_sorted(counts: Mapping[str, int], form: str) -> str:
    return ", ".join(sorted(form.format(name, count) for name, count in counts.items()))


def deletion_conditions(old: Sequence[Condition], report: DeletionReport, now: datetime) -> tuple[Condition, ...]:
    """Return the namespace's conditions after this round; unrelated ones are kept. Equal to `old` if none changed."""
    true_conditions = _true_conditions(report)
    result = list(old)
    for type_, ok in _OK_CONDITIONS.items():
        reason, message = true_conditions.get(type_, ok)
        status = "True" if type_ in true_conditions else "False"
        index = next((position for position, condition in enumerate(result) if condition.type == type_), None)
        before = None if index is None else result[index]
        since = before.last_transition_time if before is not None and before.status == status else now
        condition = Condition(type=type_, status=status, last_transition_time=since, reason=reason, message=message)
        if index is None:
            result.append(condition)
        else:
            result[index] = condition
    return tuple(result)
