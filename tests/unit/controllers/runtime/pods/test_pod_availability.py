"""Active and available Pods."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.controllers.runtime.pods.pod_availability import (
    affects_owner,
    is_active,
    is_available,
    next_availability_seconds,
)
from kubeloop.kube.objects.api_types import LabelSelector, Pod, convert
from kubeloop.kube.objects.object_fields import is_ready

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def pod(phase: str = "Running", *, deleted: bool = False, ready: str = "", since: str | None = None) -> Pod:
    """Return a Pod. ready: status of its Ready condition, which it lacks if empty; since: time in minute 12:00."""
    metadata = {"name": "p", "deletionTimestamp": "2026-01-01T12:00:00Z"} if deleted else {"name": "p"}
    condition = {"type": "Ready", "status": ready} | (
        {"lastTransitionTime": f"2026-01-01T12:00:{since}Z"} if since else {}
    )
    conditions = [{"type": "PodScheduled", "status": "True"}, *([condition] if ready else [])]
    return convert(Pod, {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}})


@pytest.mark.parametrize(
    ("since", "available"),
    [("9999-12-31T23:59:59Z", False), ("0001-01-01T00:00:01Z", True), ("10000-01-01T00:00:00Z", False)],
)
def test_availability_of_a_pod_ready_in_any_year(since: str, available: bool):
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    ready = convert(Pod, {"metadata": {"name": "p"}, "status": {"conditions": conditions}})
    assert is_available(ready, 2**31 - 1, NOW) == available
    seconds = next_availability_seconds([ready], 5, NOW)
    assert seconds is None if available else seconds == 9_223_372_036.854775807


@pytest.mark.parametrize(
    ("phase", "deleted", "active"),
    [
        pytest.param("Pending", False, True, id="pending"),
        pytest.param("Running", False, True, id="running"),
        pytest.param("Running", True, False, id="running, deleted"),
        pytest.param("Failed", False, False, id="failed"),
        pytest.param("Succeeded", True, False, id="succeeded, deleted"),
    ],
)
def test_pod_is_active(phase, deleted, active):
    assert is_active(pod(phase, deleted=deleted)) is active


@pytest.mark.parametrize(
    ("ready", "since", "min_ready_seconds", "expected"),
    [
        pytest.param("", None, 0, (False, False), id="no condition"),
        pytest.param("False", "00", 0, (False, False), id="not ready"),
        pytest.param("True", None, 0, (True, True), id="no minimum: time is not needed"),
        pytest.param("True", None, 10, (True, False), id="minimum without a time"),
        pytest.param("True", "20", 10, (True, True), id="minimum just reached"),
        pytest.param("True", "21", 10, (True, False), id="minimum not reached"),
    ],
)
def test_ready_and_available(ready, since, min_ready_seconds, expected):
    tested = pod(ready=ready, since=since)
    assert (is_ready(tested), is_available(tested, min_ready_seconds, NOW)) == expected


@pytest.mark.parametrize(
    ("pods", "min_ready_seconds", "seconds"),
    [
        pytest.param([pod(ready="True", since="25"), pod(ready="True", since="22")], 10, 2.0, id="soonest Pod"),
        pytest.param([pod(ready="True", since="20"), pod(ready="False", since="29")], 10, None, id="no Pod to come"),
        pytest.param([pod(ready="True")], 10, None, id="no time"),
        pytest.param([pod(ready="True", since="25")], 0, None, id="no minimum"),
    ],
)
def test_next_availability_seconds(pods, min_ready_seconds, seconds):
    assert next_availability_seconds(pods, min_ready_seconds, NOW) == seconds


ZONE = {"topology.kubernetes.io/zone": "a"}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("changes", "affected"),
    [
        pytest.param({"spec": {"nodeName": "n"}, "metadata": {"labels": {"app": "web", **ZONE}}}, False, id="bound"),
        pytest.param({"spec": {"nodeName": "n"}, "status": {"podIP": "10.0.0.1"}}, False, id="status without effect"),
        pytest.param({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}, True, id="unbound"),
        pytest.param({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}, True, id="phase"),
        pytest.param({"spec": {"nodeName": "n"}, "status": READY}, True, id="ready"),
        pytest.param({"spec": {"nodeName": "n"}, "metadata": {"labels": {"app": "db"}}}, True, id="selected label"),
        pytest.param({"spec": {"nodeName": "n"}, "metadata": {"labels": {"app": "web", "tier": "x"}}}, True, id="key"),
        pytest.param({"spec": {"nodeName": "n"}, "metadata": {"labels": {"app": "web", "hash": "x"}}}, True, id="hash"),
        pytest.param(
            {
                "spec": {"nodeName": "n"},
                "metadata": {"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T12:00:00Z"},
            },
            True,
            id="deleted",
        ),
    ],
)
def test_update_of_a_pod_affects_its_owner(changes, affected):
    body = {"metadata": {"labels": {"app": "web"}}, "status": {}}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    old, new = convert(Pod, body), convert(Pod, body | changes)
    assert affects_owner(old, new, convert(LabelSelector, selector), ("hash",)) is affected
