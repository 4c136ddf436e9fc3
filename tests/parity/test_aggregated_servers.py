"""Aggregated API servers beside kube-apiserver: conditions, requests that they receive, responses, discovery."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.apiserver.aggregated_server import GROUP, PATH, SPEC, VERSION, AggregatedServer, in_thread
from support.apiserver.apiserver_process import apiserver_command, running_apiserver_sync
from support.apiserver.tls_api import TlsApi
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.objects.client_certificates import client_certificate

JSON = dict[str, Any]
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TlsApi, TlsApi]]:
    needs_binaries()
    folder = tmp_path_factory.mktemp("servers")
    authority = CertificateAuthority.create(datetime.now(UTC))
    (folder / "ca.crt").write_text(authority.certificate_pem)
    (folder / "proxy.pem").write_bytes(client_certificate(authority, "front-proxy-client").pem)
    flags = {
        "requestheader-client-ca-file": str(folder / "ca.crt"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-uid-headers": "X-Remote-Uid",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": str(folder / "proxy.pem"),
        "proxy-client-key-file": str(folder / "proxy.pem"),
    }
    with (
        real_apiserver(folder / "real", flags) as real,
        running_apiserver_sync(apiserver_command(folder, "--authorization-mode=AlwaysAllow")) as _,
    ):
        yield TlsApi.from_kubeconfig(folder / "kubeconfig"), TlsApi.from_kubeconfig(real.kubeconfig)


def condition(api: TlsApi) -> JSON:
    status = api.administrator("GET", f"{SERVICES}/{NAME}")[1]["status"]
    conditions = status.get("conditions") or [{}]
    return {name: conditions[0].get(name) for name in ("type", "status", "reason", "message")}


def until(api: TlsApi, reason: str) -> JSON:
    deadline = time.monotonic() + 45
    while (present := condition(api))["reason"] != reason:
        assert time.monotonic() < deadline, present
        time.sleep(0.05)
    return {
        **present,
        "message": re.sub(
            r"(localhost|127\.0\.0\.1|\[::1\]):\d+", "ADDRESS", re.sub(r"port \d+", "PORT", present["message"])
        ),
    }


def put_service(api: TlsApi, spec: JSON) -> None:
    api.administrator("DELETE", "/api/v1/namespaces/default/services/agg")
    body = {"metadata": {"name": "agg"}, "spec": spec}
    assert api.administrator("POST", "/api/v1/namespaces/default/services", body)[0] == 201


def upgrade(api: TlsApi, name: str) -> list[str]:
    """Return the first line and, of a WebSocket, the first message of the response to a request for an upgrade."""
    key = base64.b64encode(b"0123456789abcdef").decode()
    head = [
        f"GET {PATH}/{name} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {api.token}",
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}",
    ]  # fmt: skip
    with api.connect() as connection, connection.makefile("rb") as received:
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        lines = [received.readline().decode().strip()]
        while received.readline().strip():
            pass
        if " 101 " in lines[0]:
            lines.append(received.read(2 + len("admin")).decode("latin-1"))
    return lines


def run(api: TlsApi, server: AggregatedServer) -> JSON:
    """Return everything that a user sees while an APIService comes and goes."""
    seen: JSON = {}
    service = server.api_service(service={"name": "agg", "namespace": "default", "port": server.port})
    created = api.administrator("POST", SERVICES, service)
    seen["created"] = (created[0], created[1]["status"])
    seen["no Service"] = until(api, "ServiceNotFound")

    def requests() -> JSON:
        paths = (
            PATH, f"/apis/{GROUP}", f"{PATH}/things", f"{PATH}/namespaces/a%20b/things?x=2&x=1&limit=3",
            f"{PATH}/missing", f"{PATH}/watch", f"{PATH}/stream", f"{PATH}/moved",
        )  # fmt: skip
        responses = {path: api.administrator("GET", path) for path in paths}
        token = f"Bearer {api.token}"
        impersonated = {
            "Impersonate_User": "alice", "Impersonate_Group": "dev", "Impersonate_Uid": "u",
            "Impersonate_Extra_Acme.com%2fproject": "p", "X_Test": "t", "X_Remote_User": "mallory",
        }  # fmt: skip
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            responses[method] = api.request(
                method, f"{PATH}/things/a", {"spec": 1}, Authorization=token, **impersonated
            )
        groups = api.administrator("GET", "/apis")[1]["groups"]
        items = api.request("GET", "/apis", Authorization=token, Accept=AGGREGATED)[1]["items"]
        return {
            "responses": responses,
            "groups": [group for group in groups if group["name"] == GROUP],
            "items": [item for item in items if item["metadata"].get("name") == GROUP],
            "upgrades": [upgrade(api, name) for name in ("socket", "missing", "things", "moved")],
        }

    def openapi() -> JSON:
        name, deadline = PATH.removeprefix("/"), time.monotonic() + 45
        while name not in (v3 := api.administrator("GET", "/openapi/v3")[1]["paths"]):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        v2 = api.administrator("GET", "/openapi/v2")[1]
        return {
            "v3": v3[name],
            "document": api.administrator("GET", f"/openapi/v3{PATH}")[1],
            "paths": {path: item for path, item in v2["paths"].items() if path.startswith(PATH)},
            "definitions": {name: value for name, value in v2["definitions"].items() if name.startswith("com.example")},
        }

    seen["requests without Service"] = requests()
    put_service(api, {"ports": [{"port": 1}]})
    seen["other port"] = until(api, "ServicePortError")
    put_service(api, {"ports": [{"port": server.port}]})
    seen["no endpoints"] = until(api, "EndpointsNotFound")
    put_service(api, {"type": "ExternalName", "externalName": "localhost"})
    seen["available"] = until(api, "Passed")
    time.sleep(2)  # kube-apiserver fetches discovery documents afterwards
    seen["requests"], seen["OpenAPI"] = requests(), openapi()
    server.is_broken = True
    put_service(api, {"type": "ExternalName", "externalName": "localhost"})
    seen["broken"] = until(api, "FailedDiscoveryCheck")
    server.is_broken = False
    assert api.administrator("DELETE", f"{SERVICES}/{NAME}")[0] == 200
    time.sleep(2)
    seen["requests after the deletion"] = api.administrator("GET", f"{PATH}/things")
    return seen


def test_aggregated_server_is_served_as_by_kubernetes(servers: tuple[TlsApi, TlsApi]):
    results = []
    for api in servers:
        with in_thread(AggregatedServer()) as server:
            name = PATH.removeprefix("/")
            server.documents["/openapi/v2"] = SPEC
            server.documents["/openapi/v3"] = {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"}}}
            server.documents[f"/openapi/v3/{name}"] = {"openapi": "3.0.0", "paths": {}}
            results.append(run(api, server))
    ours, real = results
    for name in real:
        assert ours[name] == real[name], name
