"""Permissions that are checked before a cluster is observed."""

from __future__ import annotations

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.observation.cluster_access import check_access
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import WatchFault, injected_error

LEASE = ("kube-system", "kubeloop-observe")


pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def server():
    return FakeApiServer()


def forbid(server, *resources):
    def reject(method, path):
        return injected_error(403) if any(f"/{resource}" in path for resource in resources) else None

    server.transport.reject = reject


async def test_all_permissions(server):
    assert await check_access(server.client, "", {}, LEASE) == frozenset()
    assert [request.path for request in server.transport.sent if "/leases/" in request.path] != []
    assert server.requests == []  # no writes


@pytest.mark.parametrize("resource", ["events", "nodes", "leases"])
async def test_optional_resource_is_reported(server, resource):
    forbid(server, resource)
    assert await check_access(server.client, "", {}, LEASE) == {resource}


async def test_lease_is_needed_for_leader_election_only(server):
    forbid(server, "leases")
    assert await check_access(server.client, "", {}, None) == frozenset()


async def test_forbidden_watch_counts_as_missing(server):
    server.transport.watch_faults.append(WatchFault("refuse", code=403, resource="events"))
    assert await check_access(server.client, "", {}, None) == {"events"}


@pytest.mark.parametrize(("namespace", "kind"), [("", "ClusterRole"), ("shop", "Role")])
async def test_error_without_access_to_pods_has_the_rule(server, namespace, kind):
    forbid(server, "pods")
    with pytest.raises(UserError, match="does not permit to list and watch pods in") as denied:
        await check_access(server.client, namespace, {}, None)
    assert f"bind a {kind} with the rule" in denied.value.hint
    assert "resources: [pods], verbs: [list, watch]" in denied.value.hint


async def test_error_of_a_rejected_selector_names_it(server):
    with pytest.raises(UserError, match="rejects the selector"):
        await check_access(server.client, "", {"label_selector": "app in ("}, None)


async def test_error_of_rejected_credentials(server):
    server.transport.reject = lambda method, path: injected_error(401)
    with pytest.raises(UserError, match="denies access") as denied:
        await check_access(server.client, "", {}, None)
    assert "kubeconfig" in denied.value.hint


async def test_error_of_an_unreachable_server(server):
    server.transport.down = True
    with pytest.raises(UserError, match="does not respond"):
        await check_access(server.client, "", {}, None)
