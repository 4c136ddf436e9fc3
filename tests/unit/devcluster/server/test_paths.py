"""Paths beside the resources, verbs, media types and headers, as kube-apiserver v1.36 answers them."""

from __future__ import annotations

import re

import msgspec
import pytest

from kubeloop.devcluster.server.health_paths import HEALTH
from support.api_requests import InProcessApi

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", HEALTH)
async def test_every_check_has_a_path_and_a_line(api: InProcessApi, place: str):
    assert api("GET", place) == (200, "ok")
    assert api.headers["X-Content-Type-Options"] == "nosniff"
    told = api("GET", f"{place}?verbose")[1].splitlines()
    assert told == [*(f"[+]{each} ok" for each in HEALTH[place]), f"{place[1:]} check passed"]
    assert {api("GET", f"{place}/{each}")[0] for each in HEALTH[place]} == {200}
    assert api("GET", f"{place}/none") == (404, "404 page not found\n")


async def test_checks_are_excluded_by_name_and_unknown_names_are_told(api: InProcessApi):
    told = api("GET", "/livez?verbose&exclude=etcd&exclude=b&exclude=a")[1]
    assert "[+]etcd excluded: ok\n" in told
    assert 'warn: some health checks cannot be excluded: no matches for "a","b"\n' in told
    assert api("GET", "/readyz/etcd")[0] == 404, "being ready is asked of informers and not of etcd"


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
async def test_discovery_comes_in_the_first_form_that_there_is(api: InProcessApi, path: str, accept: str, form: str):
    answer = api.respond("GET", path, accept=accept)
    assert (answer.status, answer.content_type) == (200, form)


@pytest.mark.parametrize(
    ("path", "accept", "told"),
    [
        ("/apis", "text/html", "only the following media types are accepted"),
        ("/apis", V2BETA1, "only the following media types are accepted"),
        ("/apis/apps", V2, "only the following media types are accepted"),
        ("/apis/apps/v1", "text/html", "406: Not Acceptable\n\nAvailable representations: application/json, "),
        ("/api", "application/*", "406: Not Acceptable\n\nAvailable representations: application/json, "),
        ("/version", "text/html", "406: Not Acceptable\n\nAvailable representations: application/json"),
    ],
)
async def test_discovery_in_no_form_that_is_wanted_is_not_acceptable(
    api: InProcessApi, path: str, accept: str, told: str
):
    status, answer = api("GET", path, accept=accept)
    assert (status, answer["message"].startswith(told)) == (406, True), answer


async def test_discovery_in_yaml_has_no_anchors(api: InProcessApi):
    answer = api.respond("GET", "/apis/apps", accept="application/yaml")
    assert answer.body == (
        b"apiVersion: v1\nkind: APIGroup\nname: apps\npreferredVersion:\n  groupVersion: apps/v1\n  version: v1\n"
        b"versions:\n- groupVersion: apps/v1\n  version: v1\n"
    )


async def test_versions_say_where_the_server_is_found(api: InProcessApi):
    found = api("GET", "/api", host="127.0.0.1:6443")[1]
    assert found["serverAddressByClientCIDRs"] == [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]


async def test_storage_versions_have_kubernetes_hashes_and_second_versions_share_them(api: InProcessApi):
    def hashes(path: str) -> dict[str, str]:
        return {each["name"]: each.get("storageVersionHash", "") for each in api("GET", path)[1]["resources"]}

    core = hashes("/api/v1")
    assert (core["configmaps"], core["bindings"], core["pods/log"]) == ("qFsyl6wFWjQ=", "", "")
    assert hashes("/apis/events.k8s.io/v1")["events"] == core["events"] == "r2yiGXH7wu8="
    assert hashes("/apis/autoscaling/v1") | hashes("/apis/autoscaling/v2") == hashes("/apis/autoscaling/v1")


async def test_the_aggregator_answers_whatever_the_verb_and_others_do_not(api: InProcessApi):
    assert [api("PATCH", path)[0] for path in ("/apis", "/apis/apps", "/apis/apps/v1", "/api", "/version")] == [
        200, 200, 405, 405, 405,
    ]  # fmt: skip


# --- caches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/apis", "/openapi/v2", "/openapi/v3/apis/policy/v1"])
async def test_who_has_a_document_already_is_not_sent_it_again(api: InProcessApi, path: str):
    accept = V2 if path == "/apis" else "application/json"
    first = api.respond("GET", path, accept=accept)
    etag = api.headers["Etag"]
    assert first.body
    again = api.respond("GET", path, accept=accept, if_none_match=etag)
    assert (again.status, again.body, api.headers["Etag"]) == (304, b"", etag)
    assert api.respond("GET", path, accept=accept, if_none_match='"other"').status == 200


async def test_documents_by_their_hash_may_be_kept_and_by_another_are_elsewhere(api: InProcessApi):
    index = api("GET", "/openapi/v3")
    assert index[0] == 200
    place = msgspec.json.decode(index[1])["paths"]["apis/policy/v1"]["serverRelativeURL"]
    answer = api.respond("GET", place)
    assert (answer.status, answer.caching) == (200, "public, immutable")
    assert api.headers["Etag"] == f'"{place.partition("hash=")[2]}"'
    assert api.respond("GET", "/openapi/v3/apis/policy/v1?hash=ABC").status == 301
    assert api.headers["Location"] == place


async def test_openapi_in_no_form_that_is_wanted_is_not_acceptable(api: InProcessApi):
    for path in ("/openapi/v2", "/openapi/v3/apis/policy/v1"):
        assert api("GET", path, accept="text/html") == (406, "")
    assert api("GET", "/openapi/v3/none") == (404, "")


# --- every answer -----------------------------------------------------------------------------------------------------


async def test_people_read_json_with_indents(api: InProcessApi):
    path = "/api/v1/namespaces/default"
    compact = api.respond("GET", path).body
    for answer in (api.respond("GET", path, user_agent="curl/8.5.0"), api.respond("GET", f"{path}?pretty=true")):
        assert isinstance(answer.body, bytes)
        assert answer.body.startswith(b'{\n  "kind": "Namespace",\n')
        assert msgspec.json.decode(answer.body) == msgspec.json.decode(compact)
    assert api.respond("GET", f"{path}?pretty=0", user_agent="curl/8.5.0").body == compact
    assert api.respond("GET", "/version").body.startswith(b'{\n  "major": "1",\n')


async def test_every_answer_has_an_audit_id_the_clients_own_if_it_has_one(api: InProcessApi):
    seen = set()
    for path in ("/version", "/api/v1/nodes", "/none"):
        api("GET", path)
        seen.add(api.headers["Audit-Id"])
    assert len(seen) == 3
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", each) for each in seen)
    api("GET", "/version", audit_id="mine")
    assert api.headers["Audit-Id"] == "mine"


# --- odd ones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/api/v1/namespaces/default/configmaps/%2e%2e", 400, "Name parameter invalid: \"..\": may not be '..'"),
        ("/api/v1/nodes/a%25b", 400, "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("/api/v1/namespaces/default/configmaps/A%20B", 404, 'configmaps "A B" not found'),
    ],
)
async def test_names_that_are_no_segments_of_a_path_are_refused(api: InProcessApi, path: str, status: int, told: str):
    for method in ("GET", "DELETE"):
        answer = api(method, path)
        assert (answer[0], answer[1]["message"]) == (status, told)


async def test_a_watch_of_nothing_is_an_error_in_plain_text(api: InProcessApi):
    told = "failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch\n"
    assert api("GET", "/api/v1/watch") == (500, f'Internal Server Error: "/api/v1/watch": {told}')


# --- how it is set up, and since when it runs -------------------------------------------------------------------------


def as_kind(kind: str, version: str = "v1beta1", media_type: str = "application/json") -> str:
    return f"{media_type};g=config.k8s.io;v={version};as={kind}"


async def test_flags_are_told_to_people_and_to_programs(api: InProcessApi):
    status, text = api("GET", "/flagz")
    assert (status, text.splitlines()[1]) == (200, "apiserver flagz")
    assert "event-ttl: 1h0m0s\n" in text
    status, told = api("GET", "/flagz", accept=as_kind("Flagz"))
    assert (status, told["kind"], told["apiVersion"]) == (200, "Flagz", "config.k8s.io/v1beta1")
    assert told["flags"]["service-cluster-ip-range"] == "10.0.0.0/24"
    assert all(f"\n{name}: {value}\n" in text for name, value in told["flags"].items())


async def test_status_names_what_helps_to_look_into_the_server(api: InProcessApi):
    text = api("GET", "/statusz")[1]
    assert "Up: 0 hr 00 min 0" in text
    told = api("GET", "/statusz", accept=as_kind("Statusz"))[1]
    assert told["paths"] == ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]
    assert {f"{each}" for each in told["paths"]} <= set(api("GET", "/")[1]["paths"])
    assert api.respond("GET", "/statusz", accept=as_kind("Statusz", media_type="application/yaml")).status == 200


async def test_an_old_version_of_flags_is_answered_with_a_warning_and_others_are_not(api: InProcessApi):
    assert api("GET", "/flagz", accept=as_kind("Flagz", "v1alpha1"))[0] == 200
    assert "deprecated" in api.headers["Warning"]
    for accept in ("application/json", as_kind("Flagz", "v1"), as_kind("Statusz"), "text/html"):
        status, told = api("GET", "/flagz", accept=accept)
        assert (status, told["reason"]) == (406, "NotAcceptable")


async def test_proxies_take_every_method(api: InProcessApi):
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"):
        assert api.respond(method, "/api/v1/nodes/none/proxy/x").status == 404
        assert api.respond(method, "/api/v1/nodes/none/proxy").status == 404


async def test_metrics_begin_anew_after_a_delete(api: InProcessApi):
    api("GET", "/version")
    assert 'resource="",scope="",subresource="/version"' in api("GET", "/metrics")[1]
    assert int(api.headers["Process-Start-Time-Unix"]) > 0
    assert api("DELETE", "/metrics") == (200, "metrics reset\n")
    assert 'resource="",scope="",subresource="/version"' not in api("GET", "/metrics")[1]
