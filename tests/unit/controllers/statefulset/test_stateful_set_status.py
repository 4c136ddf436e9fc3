"""Status of a StatefulSet from its Pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from kubeloop.controllers.statefulset.stateful_set_plan import StatefulSetRevisions
from kubeloop.controllers.statefulset.stateful_set_status import (
    after_update_deletions,
    needs_status_write,
    stateful_set_status,
)
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import (
    Condition,
    ControllerRevision,
    ObjectMeta,
    Pod,
    StatefulSet,
    StatefulSetStatus,
    convert,
)
from support.objects.stateful_sets import stateful_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = (ControllerRevision(metadata=ObjectMeta(name=name)) for name in ("web-old", "web-new"))
REVISIONS = StatefulSetRevisions(OLD, NEW)


def pod(
    name: str, revision: str, *, phase: str = "Running", ready_seconds: int | None = 60, deleted: bool = False
) -> Pod:
    metadata = {"name": name, "labels": {"controller-revision-hash": revision}}
    if deleted:
        metadata["deletionTimestamp"] = rfc3339(NOW)
    conditions = []
    if ready_seconds is not None:
        since = rfc3339(NOW - timedelta(seconds=ready_seconds))
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": since})
    return convert(Pod, {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}})


def web(replicas: int, **spec: object) -> StatefulSet:
    body = stateful_set(replicas=replicas, updateStrategy={"type": "RollingUpdate"}, **spec)
    body["metadata"]["generation"] = 7
    return convert(StatefulSet, body)


def test_status_counts_pods_by_state_and_revision():
    pods = [
        pod("web-0", "web-old"),
        pod("web-1", "web-old", ready_seconds=5),
        pod("web-2", "web-new", ready_seconds=None),
        pod("web-3", "web-new", deleted=True),
        pod("web-4", "web-older", phase="Pending"),
        pod("web-9999999999", "web-new"),
    ]
    assert stateful_set_status(web(5, minReadySeconds=10), pods, REVISIONS, 2, NOW) == StatefulSetStatus(
        observed_generation=7,
        replicas=5,
        ready_replicas=3,
        available_replicas=2,
        current_replicas=2,
        updated_replicas=1,
        current_revision="web-old",
        update_revision="web-new",
        collision_count=2,
    )


def test_complete_update_makes_the_update_revision_current():
    sts = web(2)
    pods = [pod(f"web-{n}", "web-new") for n in range(2)]
    status = after_update_deletions(sts, stateful_set_status(sts, pods, REVISIONS, 0, NOW), 0)
    assert (status.current_revision, status.current_replicas) == ("web-new", 2)


def test_incomplete_update_keeps_the_current_revision_and_counts_deletions():
    sts = web(3)
    pods = [pod("web-0", "web-old"), pod("web-1", "web-old"), pod("web-2", "web-new")]
    status = after_update_deletions(sts, stateful_set_status(sts, pods, REVISIONS, 0, NOW), 1)
    assert (status.current_revision, status.current_replicas, status.updated_replicas) == ("web-old", 1, 1)


def test_status_is_written_if_a_count_revision_or_generation_changed():
    stored = StatefulSetStatus(observed_generation=3, replicas=1, conditions=(Condition(type="Custom"),))
    assert not needs_status_write(stored, replace(stored, conditions=(), collision_count=1))
    assert not needs_status_write(stored, replace(stored, observed_generation=2))
    assert needs_status_write(stored, replace(stored, observed_generation=4))
    assert needs_status_write(stored, replace(stored, ready_replicas=1))
    assert needs_status_write(stored, replace(stored, update_revision="web-2"))


def test_pods_without_an_ordinal_do_not_count():
    pods = [pod("other", "web-new"), pod("web-0", "web-new"), pod("web-x", "web-new"), pod("web-1", "web-new")]
    status = stateful_set_status(web(2), pods, REVISIONS, 0, NOW)
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (2, 2, 2)
