"""The conditions of a terminating namespace."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport, deletion_conditions
from kubeloop.kube.objects.api_types import Condition

THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def told(conditions: tuple[Condition, ...]) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in conditions]


def test_all_conditions_are_false_without_problems():
    removed = "All content successfully removed"
    assert told(deletion_conditions((), DeletionReport(), NOW)) == [
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
    texts = {each.type: (each.status, each.reason, each.message) for each in deletion_conditions((), report, NOW)}
    assert texts["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
    )
    assert texts["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: a/f in 2 resource instances, "
        "b/f in 1 resource instances",
    )
    assert texts["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: x, y",
    )


def test_transition_time_changes_only_with_condition_status():
    other = Condition(type="Other", status="True", last_transition_time=THEN)
    first = deletion_conditions((other,), DeletionReport(remaining={"pods.": 2}), THEN)
    assert first[0] == other
    assert deletion_conditions(first, DeletionReport(remaining={"pods.": 2}), NOW) == first
    second = {each.type: each for each in deletion_conditions(first, DeletionReport(remaining={"pods.": 1}), NOW)}
    assert second["NamespaceContentRemaining"].last_transition_time == THEN
    assert "has 1 resource" in second["NamespaceContentRemaining"].message
    third = {each.type: each for each in deletion_conditions(first, DeletionReport(), NOW)}
    assert third["NamespaceContentRemaining"].last_transition_time == NOW
    assert third["NamespaceDeletionContentFailure"].last_transition_time == THEN
