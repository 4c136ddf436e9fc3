"""Top owners of pods: chains of controllers, objects that cannot be read, and the number of requests."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.observed_types import ObservedOwner
from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, REPLICA_SETS, STATEFUL_SETS
from kubeloop.process.observation import top_owners
from kubeloop.process.observation.top_owners import FORBIDDEN_SECONDS, TopOwners
from support.apiserver.fake_apiserver import WIDGETS, FakeApiServer
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


def controller_reference(obj):
    reference = {name: obj[name] for name in ("apiVersion", "kind")}
    reference |= {name: obj["metadata"][name] for name in ("name", "uid")}
    return {**reference, "controller": True}


class Search:
    """TopOwners of a server with the chain Widget/w -> Deployment/web -> ReplicaSet/web-1."""

    def __init__(self):
        self.server = FakeApiServer()
        self.server.define_widgets()
        self.server.add(NAMESPACES, "ns")
        self.widget = self.server.add(WIDGETS, "w")
        self.deployment = self.server.add(DEPLOYMENTS, "web", controller_reference(self.widget))
        self.replica_set = self.server.add(REPLICA_SETS, "web-1", controller_reference(self.deployment))
        self.paths = []
        self.server.transport.on_send = lambda request: self.paths.append(request.path)
        self.owners = TopOwners(self.server.client)

    def find(self, obj=None, **changes):
        """Return the top owner of a pod that `obj` controls, as far as it is known."""
        return self.owners.find("ns", convert(ObservedOwner, controller_reference(obj or self.replica_set) | changes))

    async def find_later(self, *arguments, **changes):
        assert self.find(*arguments, **changes) is None
        await asyncio.sleep(1)
        return self.find(*arguments, **changes)

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.owners.run())
        yield
        task.cancel()


@pytest.fixture
async def search():
    return Search()


async def test_top_owner_is_the_end_of_the_chain(search):
    async with search.running():
        assert await search.find_later() == ("Widget", "w", "")


async def test_owner_is_read_once_for_many_pods(search):
    async with search.running():
        assert [search.find() for _ in range(20)] == [None] * 20
        await asyncio.sleep(1)
        requests = len(search.paths)
        assert [search.find() for _ in range(20)] == [("Widget", "w", "")] * 20
        await asyncio.sleep(1)
    assert len(search.paths) == requests
    assert sum(path.endswith("/replicasets/web-1") for path in search.paths) == 1


async def test_deleted_or_replaced_owner_ends_the_chain(search):
    stateful_set = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "1"}}
    async with search.running():
        assert await search.find_later(stateful_set) == ("StatefulSet", "db", "")
        assert await search.find_later(uid="another") == ("ReplicaSet", "web-1", "")
        assert await search.find_later(kind="Unknown", uid="2") == ("Unknown", "web-1", "")
    assert STATEFUL_SETS.path("ns", "db") in search.paths


async def test_node_of_a_static_pod_is_the_top_without_a_request(search):
    assert search.find({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "1"}}) == ("Node", "n", "")
    assert search.paths == []


async def test_forbidden_kind_ends_the_chain_and_is_reported_once(search, caplog):
    search.server.transport.reject = lambda method, path: injected_error(403) if "/deployments/" in path else None
    other = search.server.add(REPLICA_SETS, "web-2", controller_reference(search.deployment | {"uid": "other"}))
    async with search.running():
        assert await search.find_later() == ("Deployment", "web", "")
        assert await search.find_later(other) == ("Deployment", "web", "")
        assert sum("/deployments/" in path for path in search.paths) == 1
    assert len([record for record in caplog.records if "cannot read owners" in record.message]) == 1


async def test_forbidden_kind_is_tried_again_later(search):
    search.server.transport.reject = lambda method, path: injected_error(403)
    async with search.running():
        assert await search.find_later() == ("ReplicaSet", "web-1", "")
        search.server.transport.reject = lambda method, path: None
        await asyncio.sleep(FORBIDDEN_SECONDS)
        replica_set = search.server.add(REPLICA_SETS, "web-2", controller_reference(search.deployment))
        assert await search.find_later(replica_set) == ("Widget", "w", "")


async def test_owner_is_unknown_while_the_server_is_unreachable(search):
    search.server.transport.down = True
    async with search.running():
        assert await search.find_later() is None
        await asyncio.sleep(60)
        search.server.transport.down = False
        assert await search.find_later() == ("Widget", "w", "")


async def test_circular_chain_ends(search):
    search.server.api.succeed(
        "PATCH",
        WIDGETS.path("ns", "w"),
        {"metadata": {"ownerReferences": [controller_reference(search.replica_set)]}},
        "application/merge-patch+json",
    )
    async with search.running():
        assert await search.find_later() is not None


async def test_pending_and_cached_owners_are_bounded(search, monkeypatch):
    monkeypatch.setattr(top_owners, "MAX_PENDING", 2)
    monkeypatch.setattr(top_owners, "MAX_CACHED", 3)
    for number in range(5):
        search.find(uid=f"waiting-{number}")
    async with search.running():
        await asyncio.sleep(1)
        assert [search.find(uid=f"waiting-{number}") is None for number in range(5)] == [False] * 2 + [True] * 3
        await asyncio.sleep(1)
        for number in range(5):
            assert await search.find_later(uid=str(number)) == ("ReplicaSet", "web-1", "")
    assert len(search.owners._controllers) == 3


@pytest.mark.parametrize("annotated", ["ReplicaSet", "Deployment"])
async def test_traceparent_of_the_rollout_is_that_of_the_controller_or_the_top(search, annotated):
    traceparent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    annotations = {annotated: {"annotations": {"tracing.k8s.io/traceparent": traceparent}}}
    deployment = search.server.add(DEPLOYMENTS, "api", **annotations.get("Deployment", {}))
    reference = controller_reference(deployment)
    replica_set = search.server.add(REPLICA_SETS, "api-1", reference, **annotations.get("ReplicaSet", {}))
    async with search.running():
        assert await search.find_later(replica_set) == ("Deployment", "api", traceparent)
