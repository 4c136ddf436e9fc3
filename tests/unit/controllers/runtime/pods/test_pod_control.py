"""Creation and deletion of Pods by controllers: requests, events, errors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.runtime.pods.pod_control import CannotCreatePods, CannotDeletePods, PodControl
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import ApiError, NotFound
from kubeloop.kube.objects.api_types import ReplicaSet, convert
from kubeloop.kube.objects.resources import NAMESPACES, PODS, REPLICA_SETS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from support.simulation.recorded_events import RecordedEvents

pytestmark = pytest.mark.virtual_time

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}


def reasons(recorded: RecordedEvents) -> list[str]:
    return [event.reason for event in recorded.events]


@pytest.fixture
async def owner(fake_apiserver) -> ReplicaSet:
    return convert(ReplicaSet, fake_apiserver.add(REPLICA_SETS, "web"))


@pytest.fixture
async def pod_control(fake_apiserver, recorded_events) -> PodControl:
    return PodControl(structs.replace(fake_apiserver.context, events=recorded_events))


@pytest.fixture
async def reconcile(fake_apiserver) -> Reconcile:
    return fake_apiserver.context.traces.reconcile("replicaset", "ns/web", "test")


async def test_pod_is_created_and_deleted_with_events(fake_apiserver, owner, pod_control, reconcile, recorded_events):
    pod = await pod_control.create(owner, pod_from_template(owner, TEMPLATE), reconcile)
    assert pod.metadata.owner_references[0].uid == owner.metadata.uid
    await pod_control.delete(owner, pod, reconcile)
    assert fake_apiserver.store.list(PODS) == []
    assert reasons(recorded_events) == ["SuccessfulCreate", "SuccessfulDelete"]
    with pytest.raises(NotFound):
        await pod_control.delete(owner, pod, reconcile)
    assert reasons(recorded_events) == ["SuccessfulCreate", "SuccessfulDelete"]


async def test_delete_keeps_a_newer_pod_of_the_same_name(fake_apiserver, owner, pod_control, reconcile):
    pod = await pod_control.create(owner, pod_from_template(owner, TEMPLATE), reconcile)
    await pod_control.delete(owner, pod, reconcile)
    fake_apiserver.add(PODS, pod.metadata.name)
    with pytest.raises(CannotDeletePods, match="the UID in the precondition"):
        await pod_control.delete(owner, pod, reconcile)
    assert fake_apiserver.names(PODS) == [pod.metadata.name]


async def test_creation_without_events_records_none(owner, pod_control, reconcile, recorded_events):
    await pod_control.create_without_events(owner, pod_from_template(owner, TEMPLATE), reconcile)
    assert reasons(recorded_events) == []


async def test_failed_requests_are_events_and_errors(fake_apiserver, owner, pod_control, reconcile, recorded_events):
    pod = await pod_control.create(owner, pod_from_template(owner, TEMPLATE), reconcile)
    fake_apiserver.transport.reject = lambda method, path: errors.forbidden(PODS, "", "no") if method != "GET" else None
    with pytest.raises(CannotDeletePods, match="unable to delete pods"):
        await pod_control.delete(owner, pod, reconcile)
    with pytest.raises(ApiError):
        await pod_control.create(owner, pod_from_template(owner, TEMPLATE), reconcile)
    assert reasons(recorded_events) == ["SuccessfulCreate", "FailedDelete", "FailedCreate"]


async def test_no_event_while_the_namespace_is_deleted(fake_apiserver, owner, pod_control, reconcile, recorded_events):
    await fake_apiserver.client.delete(NAMESPACES, "ns")
    with pytest.raises(ApiError):
        await pod_control.create(owner, pod_from_template(owner, TEMPLATE), reconcile)
    assert reasons(recorded_events) == []


async def test_template_without_labels_is_rejected(owner, pod_control, reconcile):
    with pytest.raises(CannotCreatePods, match="no labels"):
        await pod_control.create(owner, pod_from_template(owner, {"spec": TEMPLATE["spec"]}), reconcile)
