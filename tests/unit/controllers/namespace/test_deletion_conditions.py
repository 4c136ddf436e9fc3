"""The conditions of a terminating namespace."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport, deletion_conditions
from kubeloop.kube.objects.api_types import Condition

THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def summarize(conditions: tuple[Condition, ...]) -> list[tuple[str, str, str, str]]:
    return [(condition.type, condition.status, condition.reason, condition.message) for condition in conditions]


def test_all_conditions_are_false_without_problems():
    removed = "All content successfully removed"
    assert summarize(deletion_conditions((), DeletionReport(), NOW)) == [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", "False", "ContentRemoved", removed),
        ("NamespaceFinalizersRemaining", "False", "ContentRemoved", removed),
    ]


def test_remaining_content_is_reported_in_sorted_order():
    report = DeletionReport(
        remaining={"pods.": 2, "deployments.apps": 1}, finalizers={"b/f": 1, "a/f": 2}, content_errors=["y", "x"]
    )
    by_type = {
        condition.type: (condition.status, condition.reason, condition.message)
        for condition in deletion_conditions((), report, NOW)
    }
    assert by_type["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
    )
    assert by_type["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: a/f in 2 resource instances, "
        "b/f in 1 resource instances",
    )
    assert by_type["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: x, y",
    )


def test_transition_time_changes_only_with_condition_status():
    other = Condition(type="Other", status="True", last_transition_time=THEN)
    first = deletion_conditions((other,), DeletionReport(remaining={"pods.": 2}), THEN)
    assert first[0] == other
    assert deletion_conditions(first, DeletionReport(remaining={"pods.": 2}), NOW) == first
    second = {
        condition.type: condition
        for condition in deletion_conditions(first, DeletionReport(remaining={"pods.": 1}), NOW)
    }
    assert second["NamespaceContentRemaining"].last_transition_time == THEN
    assert "has 1 resource" in second["NamespaceContentRemaining"].message
    third = {condition.type: condition for condition in deletion_conditions(first, DeletionReport(), NOW)}
    assert third["NamespaceContentRemaining"].last_transition_time == NOW
    assert third["NamespaceDeletionContentFailure"].last_transition_time == THEN
