"""Conditions, cleanup and API approval of CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.custom_resource_definitions import (
    approval_condition,
    is_protected_group,
    mark_for_cleanup,
    with_condition,
)

JSON = dict[str, Any]
ANNOTATION, ENHANCEMENT = "api-approved.kubernetes.io", "see https://github.com/kubernetes/enhancements/pull/1111"
REQUIRED = f'protected groups must have approval annotation "{ANNOTATION}"'


@pytest.mark.parametrize(("old_status", "time"), [("True", "t1"), ("False", "t2")])
def test_transition_time_changes_only_with_the_status(old_status: str, time: str):
    other = {"type": "Other", "status": "True", "lastTransitionTime": "t1"}
    old = {"type": "Established", "status": old_status, "lastTransitionTime": "t1", "reason": "Old"}
    new = {"type": "Established", "status": "True", "lastTransitionTime": time, "reason": "New", "message": "m"}
    assert with_condition([old, other], "Established", "True", "New", "m", now="t2") == [new, other]


@pytest.mark.parametrize("finalizers", [[], ["customresourcecleanup.apiextensions.k8s.io"]])
def test_deleted_definition_has_the_cleanup_finalizer(finalizers: list[str]):
    definition = {"metadata": {"name": "a", "finalizers": finalizers}, "status": {"conditions": None}}
    marked = mark_for_cleanup(definition, "t1")
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert marked["metadata"]["deletionTimestamp"] == "t1"
    (condition,) = marked["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Terminating",
        "True",
        "InstanceDeletionPending",
    )


@pytest.mark.parametrize(
    ("group", "is_protected"),
    [("k8s.io", True), ("x.kubernetes.io", True), ("x.k8s.io", True), ("myk8s.io", False), ("example.com", False)],
)
def test_protected_groups(group: str, is_protected: bool):
    assert is_protected_group(group) is is_protected


@pytest.mark.parametrize(
    ("annotations", "condition"),
    [
        pytest.param(None, ("False", "MissingAnnotation", f"{REQUIRED}, {ENHANCEMENT}"), id="missing"),
        pytest.param(
            {ANNOTATION: "unapproved, experimental"},
            ("False", "UnapprovedAnnotation", 'not approved: "unapproved, experimental"'),
            id="unapproved",
        ),
        pytest.param(
            {ANNOTATION: "https://example.com/1"},
            ("True", "ApprovedAnnotation", "approved in https://example.com/1"),
            id="approved",
        ),
        pytest.param(
            {ANNOTATION: "yes"},
            (
                "False",
                "InvalidAnnotation",
                f'{REQUIRED} with either a URL or a reason starting with "unapproved", {ENHANCEMENT}',
            ),
            id="neither a URL nor a reason",
        ),
    ],
)
def test_approval_by_annotation(annotations: JSON | None, condition: tuple[str, str, str]):
    assert approval_condition({"metadata": {"annotations": annotations}}) == condition
