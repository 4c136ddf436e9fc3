"""Paths other than resources, with verbs, media types and headers as in kube-apiserver v1.36."""

from __future__ import annotations

import re

import msgspec
import pytest

from kubeloop.devcluster.server.health_paths import HEALTH
from support.apiserver.api_requests import InProcessApi

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", HEALTH)
async def test_health_check_has_a_path_and_a_line(api: InProcessApi, path: str):
    assert api("GET", path) == (200, "ok")
    assert api.headers["X-Content-Type-Options"] == "nosniff"
    lines = api("GET", f"{path}?verbose")[1].splitlines()
    assert lines == ["[+]ping ok", f"{path[1:]} check passed"]
    assert api("GET", f"{path}/ping") == (200, "ok")
    assert api("GET", f"{path}/none") == (404, "404 page not found\n")


async def test_health_checks_are_excluded_by_name(api: InProcessApi):
    text = api("GET", "/livez?verbose&exclude=ping&exclude=b&exclude=a")[1]
    assert "[+]ping excluded: ok\n" in text
    assert 'warn: some health checks cannot be excluded: no matches for "a","b"\n' in text
    assert api("GET", "/livez/etcd")[0] == 404, "no check that cannot fail"


# --- discovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "accept", "form"),
    [
        ("/apis", V2, V2),
        ("/apis", f"{V2},{V2BETA1},application/json", V2),
        ("/apis", f"{V2BETA1},application/json", "application/json"),
        ("/apis", "application/*", "application/json"),
        ("/api", "application/yaml", "application/yaml"),
        ("/apis/apps/v1", "text/html,*/*;q=0.1", "application/json"),
    ],
)
async def test_discovery_has_first_available_media_type(api: InProcessApi, path: str, accept: str, form: str):
    response = api.respond("GET", path, accept=accept)
    assert (response.status, response.content_type) == (200, form)


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        ("/apis", "text/html", "only the following media types are accepted"),
        ("/apis", V2BETA1, "only the following media types are accepted"),
        ("/apis/apps", V2, "only the following media types are accepted"),
        ("/apis/apps/v1", "text/html", "406: Not Acceptable\n\nAvailable representations: application/json, "),
        ("/api", "application/*", "406: Not Acceptable\n\nAvailable representations: application/json, "),
        ("/version", "text/html", "406: Not Acceptable\n\nAvailable representations: application/json"),
    ],
)
async def test_discovery_in_unavailable_media_type_is_not_acceptable(
    api: InProcessApi, path: str, accept: str, message: str
):
    status, answer = api("GET", path, accept=accept)
    assert (status, answer["message"].startswith(message)) == (406, True), answer


async def test_discovery_in_yaml_has_no_anchors(api: InProcessApi):
    response = api.respond("GET", "/apis/apps", accept="application/yaml")
    assert response.body == (
        b"apiVersion: v1\nkind: APIGroup\nname: apps\npreferredVersion:\n  groupVersion: apps/v1\n  version: v1\n"
        b"versions:\n- groupVersion: apps/v1\n  version: v1\n"
    )


async def test_api_versions_contain_server_address(api: InProcessApi):
    versions = api("GET", "/api", host="127.0.0.1:6443")[1]
    assert versions["serverAddressByClientCIDRs"] == [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]


async def test_storage_version_hashes_match_kubernetes(api: InProcessApi):
    def hashes(path: str) -> dict[str, str]:
        return {
            resource["name"]: resource.get("storageVersionHash", "") for resource in api("GET", path)[1]["resources"]
        }

    core = hashes("/api/v1")
    assert (core["configmaps"], core["bindings"], core["pods/log"]) == ("qFsyl6wFWjQ=", "", "")
    assert hashes("/apis/events.k8s.io/v1")["events"] == core["events"] == "r2yiGXH7wu8="
    assert hashes("/apis/autoscaling/v1") | hashes("/apis/autoscaling/v2") == hashes("/apis/autoscaling/v1")


async def test_aggregator_paths_accept_any_verb(api: InProcessApi):
    assert [api("PATCH", path)[0] for path in ("/apis", "/apis/apps", "/apis/apps/v1", "/api", "/version")] == [
        200, 200, 405, 405, 405,
    ]  # fmt: skip


# --- caching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/apis", "/openapi/v2", "/openapi/v3/apis/policy/v1"])
async def test_document_with_matching_etag_is_not_sent_again(api: InProcessApi, path: str):
    accept = V2 if path == "/apis" else "application/json"
    first = api.respond("GET", path, accept=accept)
    etag = api.headers["Etag"]
    assert first.body
    again = api.respond("GET", path, accept=accept, if_none_match=etag)
    assert (again.status, again.body, api.headers["Etag"]) == (304, b"", etag)
    assert api.respond("GET", path, accept=accept, if_none_match='"other"').status == 200


async def test_openapi_with_hash_is_immutable_and_other_hash_redirects(api: InProcessApi):
    index = api("GET", "/openapi/v3")
    assert index[0] == 200
    url = msgspec.json.decode(index[1])["paths"]["apis/policy/v1"]["serverRelativeURL"]
    response = api.respond("GET", url)
    assert (response.status, response.caching) == (200, "public, immutable")
    assert api.headers["Etag"] == f'"{url.partition("hash=")[2]}"'
    assert api.respond("GET", "/openapi/v3/apis/policy/v1?hash=ABC").status == 301
    assert api.headers["Location"] == url


async def test_openapi_in_unavailable_media_type_is_not_acceptable(api: InProcessApi):
    for path in ("/openapi/v2", "/openapi/v3/apis/policy/v1"):
        assert api("GET", path, accept="text/html") == (406, "")
    assert api("GET", "/openapi/v3/none") == (404, "")


# --- all responses ----------------------------------------------------------------------------------------------------


async def test_json_is_indented_for_curl_and_pretty(api: InProcessApi):
    path = "/api/v1/namespaces/default"
    compact = api.respond("GET", path).body
    for response in (api.respond("GET", path, user_agent="curl/8.5.0"), api.respond("GET", f"{path}?pretty=true")):
        assert isinstance(response.body, bytes)
        assert response.body.startswith(b'{\n  "kind": "Namespace",\n')
        assert msgspec.json.decode(response.body) == msgspec.json.decode(compact)
    assert api.respond("GET", f"{path}?pretty=0", user_agent="curl/8.5.0").body == compact
    assert api.respond("GET", "/version").body.startswith(b'{\n  "major": "1",\n')


async def test_response_has_audit_id_of_the_client_or_a_new_one(api: InProcessApi):
    audit_ids = set()
    for path in ("/version", "/api/v1/nodes", "/none"):
        api("GET", path)
        audit_ids.add(api.headers["Audit-Id"])
    assert len(audit_ids) == 3
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", audit_id) for audit_id in audit_ids)
    api("GET", "/version", audit_id="mine")
    assert api.headers["Audit-Id"] == "mine"


# --- special paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/v1/namespaces/default/configmaps/%2e%2e", 400, "Name parameter invalid: \"..\": may not be '..'"),
        ("/api/v1/nodes/a%25b", 400, "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("/api/v1/namespaces/default/configmaps/A%20B", 404, 'configmaps "A B" not found'),
    ],
)
async def test_names_that_are_no_path_segments_are_rejected(api: InProcessApi, path: str, status: int, message: str):
    for method in ("GET", "DELETE"):
        response = api(method, path)
        assert (response[0], response[1]["message"]) == (status, message)


async def test_watch_path_without_resource_is_a_plain_text_error(api: InProcessApi):
    message = "failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch\n"
    assert api("GET", "/api/v1/watch") == (500, f'Internal Server Error: "/api/v1/watch": {message}')


# --- /flagz and /statusz ----------------------------------------------------------------------------------------------


def as_kind(kind: str, version: str = "v1beta1", media_type: str = "application/json") -> str:
    return f"{media_type};g=config.k8s.io;v={version};as={kind}"


async def test_flagz_is_served_as_text_and_json(api: InProcessApi):
    status, text = api("GET", "/flagz")
    assert (status, text.splitlines()[1]) == (200, "apiserver flagz")
    assert "event-ttl: 1h0m0s\n" in text
    status, response = api("GET", "/flagz", accept=as_kind("Flagz"))
    assert (status, response["kind"], response["apiVersion"]) == (200, "Flagz", "config.k8s.io/v1beta1")
    assert response["flags"]["service-cluster-ip-range"] == "10.0.0.0/24"
    assert all(f"\n{name}: {value}\n" in text for name, value in response["flags"].items())


async def test_statusz_lists_debug_paths(api: InProcessApi):
    text = api("GET", "/statusz")[1]
    assert "Up: 0 hr 00 min 0" in text
    response = api("GET", "/statusz", accept=as_kind("Statusz"))[1]
    assert response["paths"] == ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]
    assert {f"{path}" for path in response["paths"]} <= set(api("GET", "/")[1]["paths"])
    assert api.respond("GET", "/statusz", accept=as_kind("Statusz", media_type="application/yaml")).status == 200


async def test_old_flagz_version_warns_and_unknown_is_rejected(api: InProcessApi):
    assert api("GET", "/flagz", accept=as_kind("Flagz", "v1alpha1"))[0] == 200
    assert "deprecated" in api.headers["Warning"]
    for accept in ("application/json", as_kind("Flagz", "v1"), as_kind("Statusz"), "text/html"):
        status, response = api("GET", "/flagz", accept=accept)
        assert (status, response["reason"]) == (406, "NotAcceptable")


async def test_proxy_paths_accept_every_method(api: InProcessApi):
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"):
        assert api.respond(method, "/api/v1/nodes/none/proxy/x").status == 404
        assert api.respond(method, "/api/v1/nodes/none/proxy").status == 404


async def test_delete_of_metrics_resets_them(api: InProcessApi):
    api("GET", "/version")
    assert 'resource="",scope="",subresource="/version"' in api("GET", "/metrics")[1]
    assert int(api.headers["Process-Start-Time-Unix"]) > 0
    assert api("DELETE", "/metrics") == (200, "metrics reset\n")
    assert 'resource="",scope="",subresource="/version"' not in api("GET", "/metrics")[1]
