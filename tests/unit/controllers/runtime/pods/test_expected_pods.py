"""Creation and deletion of the Pods of a plan: requests, and what is expected afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.pods.expected_pods import ExpectedPods
from kubeloop.controllers.runtime.pods.pod_control import CannotDeletePods
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import Forbidden
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

pytestmark = pytest.mark.virtual_time

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}


@pytest.fixture
async def owner(fake_apiserver) -> ReplicaSet:
    return convert(ReplicaSet, fake_apiserver.add(REPLICA_SETS, "web"))


@pytest.fixture
async def reconcile(fake_apiserver) -> Reconcile:
    return fake_apiserver.context.traces.reconcile("replicaset", "ns/web", "test")


@pytest.fixture
async def pod_writes(fake_apiserver) -> ExpectedPods:
    return ExpectedPods(fake_apiserver.context, ConsistencyStore({}, enabled=False))


def pods_of(server: Any) -> list[Pod]:
    return [convert(Pod, pod) for pod in server.store.list(PODS)]


async def test_writes_are_expected_until_they_are_observed(fake_apiserver, owner, pod_writes, reconcile):
    body = pod_from_template(owner, TEMPLATE)
    assert await pod_writes.apply(owner, [body, body], [], reconcile) is None
    expectations, (one, other) = pod_writes.expectations, pods_of(fake_apiserver)
    assert not expectations.met(owner.key)
    for _ in range(2):
        expectations.creation_observed(owner.key)
    assert expectations.met(owner.key)
    assert await pod_writes.apply(owner, [body], [one, other], reconcile) is None
    assert len(pods_of(fake_apiserver)) == 1
    expectations.creation_observed(owner.key)
    expectations.deletion_observed(owner.key, one.key)
    assert not expectations.met(owner.key)
    expectations.deletion_observed(owner.key, other.key)
    assert expectations.met(owner.key)


async def test_failed_writes_are_not_expected(fake_apiserver, owner, pod_writes, reconcile):
    body = pod_from_template(owner, TEMPLATE)
    await pod_writes.apply(owner, [body], [], reconcile)
    pods = pods_of(fake_apiserver)
    fake_apiserver.transport.reject = lambda method, path: errors.forbidden(PODS, "", "no") if method != "GET" else None
    assert isinstance(await pod_writes.apply(owner, [body] * 3, pods, reconcile), Forbidden)
    assert pod_writes.expectations.met(owner.key)
    assert isinstance(await pod_writes.apply(owner, [], pods, reconcile), CannotDeletePods)
    assert pod_writes.expectations.met(owner.key)


async def test_deletion_of_a_deleted_pod_succeeds(fake_apiserver, owner, pod_writes, reconcile):
    await pod_writes.apply(owner, [pod_from_template(owner, TEMPLATE)], [], reconcile)
    pods = pods_of(fake_apiserver)
    fake_apiserver.store.delete(PODS, "ns", pods[0].metadata.name)
    assert await pod_writes.apply(owner, [], pods, reconcile) is None
    assert pod_writes.expectations.met(owner.key)
