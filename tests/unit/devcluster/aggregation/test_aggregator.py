"""Aggregated API servers: requests that are passed on, availability, and discovery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kubeloop.devcluster.aggregation.aggregator import Aggregator
from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from support.apiserver.aggregated_server import GROUP, PATH, RESOURCE_LIST, SPEC, VERSION, AggregatedServer
from support.apiserver.api_requests import InProcessApi, request

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
SERVICE = {"metadata": {"name": "agg"}, "spec": {"ports": [{"port": 443}]}}


class Cluster:
    """An API server that runs, and an aggregated one."""

    def __init__(self, api: InProcessApi, server: AggregatedServer) -> None:
        self.api = api
        self.server = server

    def condition(self) -> dict[str, str]:
        conditions = self.api("GET", f"{SERVICES}/{NAME}")[1]["status"].get("conditions") or [{}]
        return {name: conditions[0].get(name, "") for name in ("status", "reason", "message")}

    async def until(self, reason: str) -> str:
        """Wait for a condition with this reason; return its message."""
        async with asyncio.timeout(10):
            while self.condition()["reason"] != reason:
                await asyncio.sleep(0.01)
        return self.condition()["message"]

    def openapi(self) -> dict[str, Any]:
        """Return the paths of /openapi/v3."""
        paths: dict[str, Any] = json.loads(self.api("GET", "/openapi/v3")[1])["paths"]
        return paths

    async def create(self, **spec: Any) -> None:
        """Create a Service at the address of the server, and its APIService."""
        annotations = {"kubeloop.dev/local-address": f"127.0.0.1:{self.server.port}"}
        self.api.create(
            "/api/v1/namespaces/default/services", {**SERVICE, "metadata": {"name": "agg", "annotations": annotations}}
        )
        self.api.create(SERVICES, self.server.api_service(**spec))
        await self.until("Passed")


@asynccontextmanager
async def running(api: ApiServer) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(api.run())
        yield
        task.cancel()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    settings = ServingSettings(
        front_proxy=FrontProxySettings(), serves_metrics=True, root_ca="", authorization_modes=("AlwaysAllow",)
    )
    api = InProcessApi(settings=settings)
    config_map = api("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")[1]
    proxies = config_map["data"]["requestheader-client-ca-file"]
    async with AggregatedServer().serving(proxies) as server, running(api.server):
        yield Cluster(api, server)


async def test_requests_are_passed_on_with_the_identity_of_the_user(cluster: Cluster):
    await cluster.create()
    headers = {"x_test": "t", "impersonate_user": "alice", "impersonate_group": "dev, ops"}
    headers |= {"x_forwarded_for": "10.0.0.1", "connection": "keep-alive, X-Hop", "x_hop": "1"}
    headers |= {"impersonate_uid": "u", "impersonate_extra_acme.com%2fp": "v"}
    status, received = await cluster.api.handle(
        "POST", f"{PATH}/namespaces/a%20b/things?dryRun=All&x=1&x=2", {"spec": 1}, authorization="", **headers
    )
    assert (status, cluster.api.headers["x-own"]) == (200, "a")
    assert received == {
        "method": "POST",
        "path": f"{PATH}/namespaces/a%20b/things?dryRun=All&x=1&x=2",
        "headers": [
            ["x-forwarded-for", "10.0.0.1"],
            ["x-forwarded-proto", "https"],
            ["x-forwarded-uri", f"{PATH}/namespaces/a%20b/things"],
            ["x-remote-extra-acme.com%2fp", "v"],
            ["x-remote-group", "dev"],
            ["x-remote-group", "ops"],
            ["x-remote-group", "system:authenticated"],
            ["x-remote-uid", "u"],
            ["x-remote-user", "alice"],
            ["x-test", "t"],
        ],
        "body": '{"spec":1}',
        "proxy": "front-proxy-client",
    }


async def test_errors_and_streams_pass_through(cluster: Cluster):
    await cluster.create()
    status, content = await cluster.api.handle("GET", f"{PATH}/things/missing")
    assert (status, content["reason"]) == (404, "NotFound")
    response = await cluster.api.server.handle(request("GET", f"{PATH}/things/stream"))
    assert not isinstance(response.body, bytes)
    lines = b"".join([chunk async for chunk in response.body]).splitlines()
    assert [json.loads(line)["object"]["number"] for line in lines] == [0, 1, 2]
    assert response.content_type == "application/json;stream=watch"


async def test_response_has_the_audit_id_that_the_server_received(cluster: Cluster):
    await cluster.create()
    await cluster.api.handle("GET", f"{PATH}/things")
    assert cluster.api.headers["x-seen-audit-id"] == cluster.api.headers["Audit-Id"] != ""


async def test_redirect_is_refused(cluster: Cluster):
    await cluster.create()
    status, text = await cluster.api.handle("GET", f"{PATH}/moved")
    assert (status, text) == (502, "the backend attempted to redirect this request, which is not permitted")


async def test_unavailable_server_is_a_503(cluster: Cluster):
    await cluster.create()
    cluster.api.succeed("PATCH", f"{SERVICES}/{NAME}", {"spec": {"service": {"name": "other"}}})
    await cluster.until("ServiceNotFound")
    assert await cluster.api.handle("GET", f"{PATH}/things") == (503, "service unavailable\n")


async def test_connection_refused_after_the_check_is_a_503(cluster: Cluster):
    await cluster.create()
    annotations = {"metadata": {"annotations": {"kubeloop.dev/local-address": "127.0.0.1:1"}}}
    cluster.api.succeed("PATCH", "/api/v1/namespaces/default/services/agg", annotations)
    status, content = await cluster.api.handle("GET", f"{PATH}/things")
    assert (status, content) == (503, "dial tcp 127.0.0.1:1: connect: connection refused\n")


async def test_conditions_name_what_is_missing(cluster: Cluster):
    api, where = cluster.api, 'service/agg in "default"'
    api.create(SERVICES, cluster.server.api_service())
    assert await cluster.until("ServiceNotFound") == f"{where} is not present"
    api.create("/api/v1/namespaces/default/services", {**SERVICE, "spec": {"ports": [{"port": 80}]}})
    assert await cluster.until("ServicePortError") == f"{where} is not listening on port 443"
    api.succeed("PATCH", "/api/v1/namespaces/default/services/agg", {"spec": {"ports": [{"port": 443}]}})
    assert await cluster.until("EndpointsNotFound") == f"cannot find endpointslices for {where}"


async def test_failed_discovery_makes_an_api_service_unavailable(cluster: Cluster):
    await cluster.create()
    cluster.server.is_broken = True
    cluster.api.succeed("PATCH", "/api/v1/namespaces/default/services/agg", {"metadata": {"labels": {"a": "b"}}})
    url = f"https://127.0.0.1:{cluster.server.port}{PATH}"
    message = await cluster.until("FailedDiscoveryCheck")
    assert message == f"failing or missing response from {url}: bad status from {url}: 500"
    cluster.server.is_broken = False
    await cluster.until("Passed")


async def test_server_that_does_not_respond_delays_no_other(cluster: Cluster):
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as silent:
        annotations = {"kubeloop.dev/local-address": f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"}
        metadata = {"name": "silent", "annotations": annotations}
        cluster.api.create("/api/v1/namespaces/default/services", {**SERVICE, "metadata": metadata})
        service = cluster.server.api_service(group="silent", service={"name": "silent", "namespace": "default"})
        cluster.api.create(SERVICES, {**service, "metadata": {"name": f"{VERSION}.silent"}})
        async with asyncio.timeout(4):  # the check of the other one takes 5 s
            await cluster.create()
        cluster.api.succeed("DELETE", f"{SERVICES}/{VERSION}.silent")


async def test_only_changes_of_its_service_cause_a_check(cluster: Cluster):
    await cluster.create()
    changed = cluster.api.server._aggregator._changed
    while changed.is_set():
        await asyncio.sleep(0)
    services = "/api/v1/namespaces/default/services"
    cluster.api.create(services, {**SERVICE, "metadata": {"name": "other"}})
    assert not changed.is_set()
    cluster.api.succeed("PATCH", f"{services}/agg", {"metadata": {"labels": {"a": "b"}}})
    assert changed.is_set()


async def test_invalid_authority_is_reported(cluster: Cluster):
    await cluster.create()
    cluster.api.succeed("PATCH", f"{SERVICES}/{NAME}", {"spec": {"caBundle": "bm9uZQ=="}})
    assert "unable to load root certificates" in await cluster.until("FailedDiscoveryCheck")


async def test_unknown_authority_is_reported(cluster: Cluster):
    await cluster.create()
    cluster.api.succeed("PATCH", f"{SERVICES}/{NAME}", {"spec": {"caBundle": AggregatedServer().ca}})
    assert "x509: certificate signed by unknown authority" in await cluster.until("FailedDiscoveryCheck")
    body = {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}
    cluster.api.succeed("PATCH", f"{SERVICES}/{NAME}", body)
    await cluster.until("Passed")


async def test_discovery_has_the_group_in_all_forms(cluster: Cluster):
    await cluster.create()
    group = {
        "name": GROUP,
        "versions": [{"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}],
        "preferredVersion": {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION},
    }
    assert group in cluster.api("GET", "/apis")[1]["groups"]
    assert cluster.api("GET", f"/apis/{GROUP}")[1] == {"kind": "APIGroup", "apiVersion": "v1", **group}
    assert await cluster.api.handle("GET", PATH) == (200, RESOURCE_LIST)
    items = cluster.api("GET", "/apis", accept=AGGREGATED)[1]["items"]
    (version,) = next(item["versions"] for item in items if item["metadata"].get("name") == GROUP)
    assert version["freshness"] == "Current"
    assert [resource["resource"] for resource in version["resources"]] == ["things"]
    cluster.api.succeed("DELETE", f"{SERVICES}/{NAME}")
    assert group not in cluster.api("GET", "/apis")[1]["groups"]
    assert cluster.api("GET", f"{PATH}/things")[0] == 404


async def test_openapi_has_the_documents_of_available_servers(cluster: Cluster):
    api, name = cluster.api, f"apis/{GROUP}/{VERSION}"
    url = f"/openapi/v3/{name}?hash=1"
    index = {"paths": {name: {"serverRelativeURL": url}, "version": {"serverRelativeURL": "/openapi/v3/version"}}}
    cluster.server.documents = {
        "/openapi/v2": SPEC, "/openapi/v3": index, f"/openapi/v3/{name}": {"openapi": "3.0.0"}
    }  # fmt: skip
    own = cluster.openapi()
    await cluster.create()
    async with asyncio.timeout(10):
        while cluster.openapi() == own:
            await asyncio.sleep(0.01)
    assert cluster.openapi() == own | {name: {"serverRelativeURL": url}}
    assert await api.handle("GET", url) == (200, {"openapi": "3.0.0"})
    document = api("GET", "/openapi/v2")[1]
    assert "com.example.Thing" in document["definitions"]
    assert b"com.example.Thing" in cast("bytes", api.respond("GET", "/openapi/v2", accept=PROTOBUF).body)
    assert document["paths"][f"{PATH}/things"] == SPEC["paths"][f"{PATH}/things"]
    api.succeed("DELETE", f"{SERVICES}/{NAME}")
    assert cluster.openapi() == own
    assert "com.example.Thing" not in api("GET", "/openapi/v2")[1]["definitions"]
    assert api("GET", url)[0] == 404


async def test_openapi_is_converted_for_servers_that_have_version_two_only(cluster: Cluster):
    cluster.server.documents = {"/openapi/v2": SPEC}
    await cluster.create()
    name = f"apis/{GROUP}/{VERSION}"
    async with asyncio.timeout(10):
        while name not in cluster.openapi():
            await asyncio.sleep(0.01)
    url = cluster.openapi()[name]["serverRelativeURL"]
    status, document = cluster.api("GET", url)
    assert (status, list(document["components"]["schemas"])) == (200, ["com.example.Thing"])
    assert cluster.api("GET", f"/openapi/v3/{name}?hash=0")[0] == 301


async def test_invalid_documents_do_not_make_a_server_unavailable(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    cluster.server.documents = {PATH: b"<html>", "/openapi/v2": b"<html>"}
    await cluster.create()
    items = cluster.api("GET", "/apis", accept=AGGREGATED)[1]["items"]
    (version,) = next(item["versions"] for item in items if item["metadata"].get("name") == GROUP)
    assert version == {"version": VERSION, "freshness": "Stale"}
    async with asyncio.timeout(10):
        while "no OpenAPI from the API server of v1.agg.example.com" not in caplog.text:
            await asyncio.sleep(0.01)
    assert cluster.api("GET", "/openapi/v2")[0] == 200


async def test_api_service_takes_over_the_metrics_api(cluster: Cluster):
    service = cluster.server.api_service(group="metrics.k8s.io", version="v1beta1")
    service["metadata"]["name"] = "v1beta1.metrics.k8s.io"
    cluster.api.create(SERVICES, service)
    path = "/apis/metrics.k8s.io/v1beta1/nodes"
    assert await cluster.api.handle("GET", path) == (503, "service unavailable\n")
    names = [group["name"] for group in cluster.api("GET", "/apis")[1]["groups"]]
    assert names.count("metrics.k8s.io") == 1
    cluster.api.succeed("DELETE", f"{SERVICES}/v1beta1.metrics.k8s.io")
    assert cluster.api("GET", path)[0] == 200


async def test_other_paths_are_not_passed_on(cluster: Cluster):
    await cluster.create()
    aggregator: Aggregator = cluster.api.server._aggregator
    for path in ("/apis", f"/apis/{GROUP}", f"/apis/{GROUP}/v2/things", "/api/v1/pods", "/healthz"):
        assert aggregator.handle(request("GET", path)) is None
