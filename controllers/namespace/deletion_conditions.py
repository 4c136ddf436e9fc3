"""What a terminating namespace tells of its deletion: five conditions. Pure functions; time is an argument.

Source: pkg/controller/namespace/deletion/status_condition_utils.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from kubeloop.kube.objects.api_types import Condition


class DeletionReport(msgspec.Struct):
    """What one round of deleting a namespace's content found.

    remaining: objects still there, per "<plural>.<group>" ("pods." for the core group); finalizers: objects per
    finalizer. The lists hold the texts of errors.
    """

    discovery_error: str = ""
    content_errors: list[str] = msgspec.field(default_factory=list)
    remaining: dict[str, int] = msgspec.field(default_factory=dict)
    finalizers: dict[str, int] = msgspec.field(default_factory=dict)


_IN_ORDER = {  # condition: (reason, message) when there is nothing to tell
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


def _troubles(report: DeletionReport) -> dict[str, tuple[str, str]]:
    """(reason, message) of the conditions that are true."""
    found: dict[str, tuple[str, str]] = {}
    if report.discovery_error:
        found["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", report.discovery_error)
    if report.content_errors:
        errors = ", ".join(sorted(report.content_errors))
        text = f"Failed to delete all resource types, {len(report.content_errors)} remaining: {errors}"
        found["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", text)
    if report.remaining:
        text = _sorted_texts(report.remaining, "{} has {} resource instances")
        found["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {text}")
    if report.finalizers:
        text = _sorted_texts(report.finalizers, "{} in {} resource instances")
        text = f"Some content in the namespace has finalizers remaining: {text}"
        found["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
    return found


def _sorted_texts(counts: Mapping[str, int], form: str) -> str:
    return ", ".join(sorted(form.format(name, count) for name, count in counts.items()))


def deletion_conditions(old: Sequence[Condition], report: DeletionReport, now: datetime) -> tuple[Condition, ...]:
    """The namespace's conditions after this round; those of others stay. Equal to `old` if nothing is new."""
    troubles = _troubles(report)
    result = list(old)
    for type_, fine in _IN_ORDER.items():
        reason, message = troubles.get(type_, fine)
        status = "True" if type_ in troubles else "False"
        place = next((index for index, condition in enumerate(result) if condition.type == type_), None)
        before = None if place is None else result[place]
        since = before.last_transition_time if before is not None and before.status == status else now
        condition = Condition(type=type_, status=status, last_transition_time=since, reason=reason, message=message)
        if place is None:
            result.append(condition)
        else:
            result[place] = condition
    return tuple(result)
