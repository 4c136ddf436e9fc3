"""Write of a status, with one retry."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.runtime.writes.object_patch import changed_fields
from kubeloop.controllers.runtime.writes.status_write import write_status
from kubeloop.kube.errors import Conflict, Forbidden
from kubeloop.kube.objects.api_types import ReplicaSet
from kubeloop.kube.objects.resources import REPLICA_SETS
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


async def write(api: Any, rs: ReplicaSet) -> ReplicaSet:
    status = replace(rs.status, observed_generation=7)
    reconcile = api.context.traces.reconcile("replicaset", rs.key, "")
    return await write_status(
        api.client, REPLICA_SETS, rs, lambda based_on: changed_fields(based_on.status, status), reconcile
    )


async def test_outdated_object_is_read_again(fake_apiserver):
    fake_apiserver.add(REPLICA_SETS, "web")
    rs = await fake_apiserver.client.get(REPLICA_SETS, "web", "ns")
    fake_apiserver.api.succeed(
        "PATCH", REPLICA_SETS.path("ns", "web"), {"spec": {"replicas": 3}}, content_type="application/merge-patch+json"
    )
    written = await write(fake_apiserver, rs)
    assert (written.spec.replicas, written.status.observed_generation) == (3, 7)
    assert len(fake_apiserver.transport.sent) == 4  # read, write, read, write


async def test_object_that_was_created_again_is_left_alone(fake_apiserver):
    fake_apiserver.add(REPLICA_SETS, "web")
    former = await fake_apiserver.client.get(REPLICA_SETS, "web", "ns")
    fake_apiserver.delete(REPLICA_SETS, "web")
    fake_apiserver.add(REPLICA_SETS, "web")
    with pytest.raises(Conflict):
        await write(fake_apiserver, former)
    current = await fake_apiserver.client.get(REPLICA_SETS, "web", "ns")
    assert current.status.observed_generation == 0


@pytest.mark.parametrize(("failures", "succeeds"), [(0, True), (1, True), (2, False)])
async def test_failed_write_is_tried_once_more(fake_apiserver, failures, succeeds):
    fake_apiserver.add(REPLICA_SETS, "web")
    rs = await fake_apiserver.client.get(REPLICA_SETS, "web", "ns")
    remaining = [injected_error(403)] * failures
    fake_apiserver.transport.reject = lambda method, path: remaining.pop() if method == "PATCH" and remaining else None
    if succeeds:
        assert (await write(fake_apiserver, rs)).status.observed_generation == 7
    else:
        with pytest.raises(Forbidden):
            await write(fake_apiserver, rs)
    assert remaining == []
    assert fake_apiserver.objects(REPLICA_SETS)[0]["status"].get("observedGeneration", 0) == (7 if succeeds else 0)
