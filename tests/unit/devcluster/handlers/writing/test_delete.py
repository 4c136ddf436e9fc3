"""Deletion of objects: grace periods, finalizers, preconditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import JOBS, get_served_resource
from kubeloop.devcluster.handlers.writing.delete import ObjectDeleter, deletion_warnings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES, PODS, Resource
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Deletion:
    """A deleter over a store that holds one object."""

    def __init__(self, resource: Resource[Any], obj: JSON) -> None:
        self.clock, self.store = SetClock(NOW), ObjectStore(seconds=lambda: 0.0)
        self._deleter = ObjectDeleter(self.store, self.clock)
        self._resource = resource
        metadata = {"name": "a", "uid": "u", **({"namespace": "ns"} if resource.namespaced else {})}
        self.store.create(resource, {**obj, "metadata": {**metadata, **obj.get("metadata", {})}})

    def delete(self, **options: Any) -> tuple[JSON, bool]:
        """Delete the object by one or two writes; return its last form and True if it is removed."""
        removal: DeleteOptions | None = DeleteOptions(**options)
        while removal is not None:
            (stored,) = self.store.table(self._resource).list()
            obj, is_removed, removal = self._deleter.delete(get_served_resource(self._resource), stored, removal)
        return obj, is_removed

    @property
    def remaining(self) -> int:
        return len(self.store.table(self._resource))


@pytest.mark.parametrize(
    ("pod", "grace", "expected"),
    [
        pytest.param({"spec": {"nodeName": "n"}}, None, 30, id="default"),
        pytest.param({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 5}}, None, 5, id="of the pod"),
        pytest.param({"spec": {"nodeName": "n"}}, 7, 7, id="of the options"),
        pytest.param({"spec": {"nodeName": "n"}}, -3, 1, id="negative"),
        pytest.param({"spec": {"nodeName": "n"}}, 0, None, id="zero"),
        pytest.param({"spec": {}}, 30, None, id="pod without a node"),
        pytest.param({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}, 30, None, id="finished pod"),
    ],
)
def test_grace_period_of_a_pod(pod: JSON, grace: int | None, expected: int | None):
    deletion = Deletion(PODS, pod)
    obj, removed = deletion.delete(grace_period_seconds=grace)
    assert (removed, deletion.remaining) == (expected is None, 0 if expected is None else 1)
    if expected is not None:
        metadata = obj["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == expected
        assert datetime.fromisoformat(metadata["deletionTimestamp"]) == NOW + timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("seconds", "deleted", "shortened"),
    [
        (10**12, "2148-10-27T00:40:19Z", "2026-01-01T00:00:08Z"),  # the fraction of a second is not stored
        (9_223_372_037, "1733-09-22T00:12:43Z", "2026-01-01T00:00:08Z"),
        (2**63 - 1, "2025-12-31T23:59:59Z", "2026-01-01T00:00:09Z"),
    ],
)
def test_deletion_time_of_a_huge_grace_period_is_that_of_go(seconds: int, deleted: str, shortened: str):
    deletion = Deletion(PODS, {"spec": {"nodeName": "n", "terminationGracePeriodSeconds": seconds}})
    metadata = deletion.delete()[0]["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"]) == (seconds, deleted)
    assert deletion.delete(grace_period_seconds=9)[0]["metadata"]["deletionTimestamp"] == shortened


def test_second_deletion_may_only_shorten_the_grace_period():
    deletion = Deletion(PODS, {"spec": {"nodeName": "n"}})
    graces = [
        deletion.delete(grace_period_seconds=grace)[0]["metadata"]["deletionGracePeriodSeconds"]
        for grace in (20, 30, 10)
    ]
    assert graces == [20, 20, 10]


@pytest.mark.parametrize(
    ("present", "options", "finalizers"),
    [
        pytest.param([], {"propagation_policy": "Foreground"}, ["foregroundDeletion"], id="foreground"),
        pytest.param([], {"propagation_policy": "Orphan"}, ["orphan"], id="orphan"),
        pytest.param([], {"orphan_dependents": True}, ["orphan"], id="orphan dependents"),
        pytest.param(["x"], {"propagation_policy": "Background"}, ["x"], id="other finalizer"),
        pytest.param(["orphan"], {"propagation_policy": "Background"}, None, id="background"),
        pytest.param([], {}, None, id="no policy"),
    ],
)
def test_finalizers_of_a_deletion(present: list[str], options: JSON, finalizers: list[str] | None):
    deletion = Deletion(CONFIG_MAPS, {"metadata": {"finalizers": present}})
    obj, removed = deletion.delete(**options)
    assert (removed, deletion.remaining) == (finalizers is None, 0 if finalizers is None else 1)
    assert obj["metadata"].get("finalizers") == finalizers or finalizers is None


@pytest.mark.parametrize("grace", [0, 30])
def test_dry_run_stores_nothing(grace: int):
    deletion = Deletion(PODS, {"spec": {"nodeName": "n"}})
    _, removed = deletion.delete(grace_period_seconds=grace, dry_run=True)
    assert (removed, deletion.remaining) == (grace == 0, 1)
    assert "deletionTimestamp" not in deletion.store.list(PODS)[0]["metadata"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"precondition_uid": "x"},
            "the UID in the precondition (x) does not match the UID in record (u). The object might have been deleted "
            "and then recreated",
        ),
        (
            {"precondition_resource_version": "9"},
            "the ResourceVersion in the precondition (9) does not match the ResourceVersion in record (2). The object "
            "might have been modified",
        ),
    ],
)
def test_precondition_that_is_not_met_is_a_conflict(options: JSON, message: str):
    deletion = Deletion(CONFIG_MAPS, {})
    with pytest.raises(StatusError) as raised:
        deletion.delete(**options)
    assert raised.value.code == 409
    assert raised.value.message == f'Operation cannot be fulfilled on ConfigMap "a": {message}'


def test_namespace_terminates_until_it_is_finalized():
    deletion = Deletion(NAMESPACES, {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    obj, removed = deletion.delete()
    assert (removed, obj["status"]["phase"], obj["metadata"]["deletionTimestamp"]) == (
        False,
        "Terminating",
        "2026-01-01T00:00:00Z",
    )


@pytest.mark.parametrize(
    ("resource", "options", "count"),
    [(JOBS, DeleteOptions(), 1), (JOBS, DeleteOptions(propagation_policy="Orphan"), 0), (PODS, DeleteOptions(), 0)],
    ids=["job", "job with a policy", "pod"],
)
def test_deletion_of_a_job_without_a_policy_warns(resource: Resource[Any], options: DeleteOptions, count: int):
    assert len(deletion_warnings(get_served_resource(resource), options)) == count
